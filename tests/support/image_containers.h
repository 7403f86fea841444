#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "darkroom/files/file_system.h"
#include "darkroom/files/paths.h"
#include "darkroom/tables/tar_writer.h"

namespace darkroom {

/// A row of an image dataset in a container of somebody else's.
struct ContainedRow {
  std::string key;
  std::string caption;
  std::string image;  ///< Empty: none.
};

/// Writes rows in one container into a folder.
using WriteContainer = std::function<void(FileSystem& files, const std::string& folder, const std::vector<ContainedRow>& rows)>;

inline void put_container_file(FileSystem& files, const std::string& folder, const std::string& name, const std::string& bytes) {
  const Status status = write_file_atomic(files, join_path(folder, name), bytes);
  EXPECT_TRUE(status.is_ok()) << status.to_string();
}

/// Rows as img2dataset writes them, `rows_per_tar` a tar.
inline void write_tars(FileSystem& files, const std::string& folder, const std::vector<ContainedRow>& rows, size_t rows_per_tar = 1000) {
  for (size_t first = 0; first < rows.size(); first += rows_per_tar) {
    std::string bytes;
    TarWriter tar([&](std::span<const std::byte> more) {
      bytes.append(reinterpret_cast<const char*>(more.data()), more.size());
      return Status::ok();
    });
    for (size_t i = first; i < std::min(rows.size(), first + rows_per_tar); ++i) {
      const ContainedRow& row = rows[i];
      EXPECT_TRUE(row.image.empty() || tar.add(row.key + ".png", row.image).is_ok());
      EXPECT_TRUE(tar.add(row.key + ".txt", row.caption).is_ok());
      EXPECT_TRUE(tar.add(row.key + ".json", R"({"caption": ")" + row.caption + R"(", "url": "http://x/)" + row.key + R"(", "width": 32})")
                      .is_ok());
    }
    EXPECT_TRUE(tar.finish().is_ok());
    const std::string number = std::to_string(first / rows_per_tar);
    put_container_file(files, folder, std::string(5 - number.size(), '0') + number + ".tar", bytes);
  }
}

inline void write_image_folder(FileSystem& files, const std::string& folder, const std::vector<ContainedRow>& rows) {
  std::string metadata;
  for (const ContainedRow& row : rows) {
    metadata +=
        R"({"file_name": "pictures/)" + row.key + R"(.png", "text": ")" + row.caption + R"(", "url": "http://x/)" + row.key + "\"}\n";
    if (!row.image.empty()) {
      put_container_file(files, folder, "pictures/" + row.key + ".png", row.image);
    }
  }
  put_container_file(files, folder, "metadata.jsonl", metadata);
}

/// REQUIRES: every row has a picture.
inline void write_plain_folder(FileSystem& files, const std::string& folder, const std::vector<ContainedRow>& rows) {
  for (const ContainedRow& row : rows) {
    put_container_file(files, folder, row.key + ".png", row.image);
    put_container_file(files, folder, row.key + ".txt", row.caption + "\n");
  }
}

/// A shard of the columns `caption`, `image` and `key`; a row without a picture has an empty one.
inline std::string mds_shard(const std::vector<ContainedRow>& rows) {
  const std::string config =
      R"({"column_encodings": ["str", "png", "str"], "column_names": ["caption", "image", "key"], "column_sizes": [null, null, null], )"
      R"("compression": null, "format": "mds", "hashes": [], "size_limit": null, "version": 2})";
  const auto word = [](size_t value) {
    const auto little = static_cast<uint32_t>(value);
    return std::string(reinterpret_cast<const char*>(&little), sizeof little);
  };
  size_t at = 4 * (rows.size() + 2) + config.size();
  std::string head = word(rows.size()) + word(at);
  std::string samples;
  for (const ContainedRow& row : rows) {
    const std::string sample = word(row.caption.size()) + word(row.image.size()) + word(row.key.size()) + row.caption + row.image + row.key;
    head += word(at += sample.size());
    samples += sample;
  }
  return head + config + samples;
}

inline void write_mds(FileSystem& files, const std::string& folder, const std::vector<ContainedRow>& rows) {
  put_container_file(files, folder, "shard.00000.mds", mds_shard(rows));
  put_container_file(files, folder, "index.json",
                     R"({"version": 2, "shards": [{"raw_data": {"basename": "shard.00000.mds"}, "zip_data": null}]})");
}

}  // namespace darkroom
