#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "darkroom/tables/tar_reader.h"
#include "support/source_path.h"

namespace darkroom {

/// A header block as text; the checksum is made right.
struct TarBlock {
  std::string name = "a.txt";
  char type = '0';
  std::string size = "00000000000";
  std::string magic = std::string(
      "ustar\0"
      "00",
      8);
  std::string prefix = {};

  std::string bytes() const {
    std::string block(512, '\0');
    const auto put = [&](size_t offset, const std::string& text) { block.replace(offset, text.size(), text); };
    put(0, name);
    put(124, size);
    put(156, std::string(1, type));
    put(257, magic);
    put(345, prefix);
    return sealed(block);
  }
  /// The block with the checksum that belongs to it.
  static std::string sealed(std::string block) {
    block.replace(148, 8, "        ");
    int sum = 0;
    for (const char c : block) {
      sum += static_cast<unsigned char>(c);
    }
    return block.replace(148, 8, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  }
};

inline std::string octal(int64_t number) { return fmt::format("{:011o}", number); }

/// The data and zeros up to the block's end.
inline std::string padded(std::string data) {
  data.resize((data.size() + 511) / 512 * 512, '\0');
  return data;
}

/// A header of that type and its data.
inline std::string tar_member(const std::string& name, const std::string& data, char type = '0') {
  return TarBlock{.name = name, .type = type, .size = octal(static_cast<int64_t>(data.size()))}.bytes() + padded(data);
}

inline std::string long_name(const std::string& name, char type = 'L') {
  return tar_member("././@LongLink", name + std::string(1, '\0'), type);
}
inline std::string pax_header(const std::string& records, char type = 'x') { return tar_member("PaxHeader", records, type); }
inline std::string tar_end() { return std::string(1024, '\0'); }

/// Bytes as a file that counts what is read of it.
class BytesFile final : public InputFile {
 public:
  explicit BytesFile(std::string bytes) : bytes_(std::move(bytes)) {}

  const std::string& path() const override { return path_; }
  int64_t size_bytes() const override { return static_cast<int64_t>(bytes_.size()) + num_missing; }
  Result<size_t> read_at(int64_t offset, std::span<std::byte> out) const override {
    if (fail_after_reads-- == 0) {
      return Status::unavailable("the store is away:", path_);
    }
    const size_t begin = std::min(static_cast<size_t>(offset), bytes_.size());
    const size_t count = std::min(out.size(), bytes_.size() - begin);
    std::copy_n(reinterpret_cast<const std::byte*>(bytes_.data()) + begin, count, out.begin());
    ++num_reads;
    largest_read = std::max(largest_read, out.size());
    num_bytes_read += static_cast<int64_t>(count);
    return count;
  }

  int64_t num_missing = 0;                ///< How much larger it says it is than it is.
  mutable int64_t fail_after_reads = -1;  ///< How many reads do well before one fails; negative: none fails.
  mutable int64_t num_reads = 0;
  mutable size_t largest_read = 0;
  mutable int64_t num_bytes_read = 0;

 private:
  std::string path_ = "in/x.tar";
  std::string bytes_;
};

/// Members up to the end or the first failure, and that failure.
inline std::pair<std::vector<TarMember>, Status> list_members(TarReader& tar) {
  std::vector<TarMember> members;
  while (true) {
    Result<std::optional<TarMember>> member = tar.next();
    if (!member.is_ok()) {
      return {std::move(members), member.status()};
    }
    if (!*member) {
      return {std::move(members), Status::ok()};
    }
    members.push_back(**std::move(member));
  }
}

inline std::pair<std::vector<TarMember>, Status> list_members(const std::string& bytes) {
  const BytesFile file(bytes);
  TarReader tar(file);
  return list_members(tar);
}

/// The only member of an archive, or the failure.
inline Result<TarMember> only_member(const std::string& bytes) {
  auto [members, status] = list_members(bytes + tar_end());
  if (!status.is_ok()) {
    return status;
  }
  DARKROOM_CHECK(members.size() == 1, "members of an archive of one:", members.size());
  return std::move(members.front());
}

/// "corrupt_data: ..." of an archive that has to fail.
inline std::string tar_failure(const std::string& bytes) { return list_members(bytes + tar_end()).second.to_string(); }

/// A line of tests/golden/tables/members.tsv.
struct GoldenTarMember {
  std::string name;
  std::string kind;
  int64_t header_offset;
  int64_t data_offset;
  int64_t size_bytes;
  std::string sha256;
};

inline std::string tar_golden(const std::string& name) {
  return read_file(local_files(), source_path("tests/golden/tables/" + name)).value();
}

inline std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

inline std::vector<GoldenTarMember> golden_members(const std::string& archive) {
  std::vector<GoldenTarMember> members;
  std::istringstream lines(tar_golden("members.tsv"));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string file, name;
    GoldenTarMember member;
    fields >> file >> name >> member.kind >> member.header_offset >> member.data_offset >> member.size_bytes >> member.sha256;
    if (file == archive) {
      member.name = from_hex(name);
      members.push_back(std::move(member));
    }
  }
  return members;
}

}  // namespace darkroom
