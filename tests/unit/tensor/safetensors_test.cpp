#include "darkroom/tensor/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "darkroom/files/fault_files.h"
#include "darkroom/files/memory_files.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class SafetensorsTest : public testing::Test {
 protected:
  // A file of `header` behind its length, then `num_data_bytes` zeros.
  std::string write_file(const std::string& header, size_t num_data_bytes, std::optional<uint64_t> stated_length = {}) {
    const std::string path = folder_.path("file.safetensors");
    const uint64_t length = stated_length.value_or(header.size());
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&length), sizeof length);
    file << header;
    for (size_t i = 0; i < num_data_bytes; ++i) {
      file.put('\0');
    }
    return path;
  }

  Status open_status(const std::string& header, size_t num_data_bytes, std::optional<uint64_t> stated_length = {}) {
    const auto file = SafetensorsFile::open(write_file(header, num_data_bytes, stated_length));
    return file.is_ok() ? Status::ok() : file.status();
  }

  void expect_corrupt(const std::string& header, size_t num_data_bytes, const std::string& message) {
    const Status status = open_status(header, num_data_bytes);
    EXPECT_EQ(status.code(), StatusCode::kCorruptData) << header;
    EXPECT_THAT(status.message(), HasSubstr(message)) << header;
    EXPECT_THAT(status.message(), HasSubstr("file.safetensors"));
  }

  TemporaryFolder folder_;
};

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape, offsets);
}

std::string header_of(const std::vector<std::string>& entries) {
  std::string text = "{";
  for (const auto& each : entries) {
    text += text.size() > 1 ? "," : "";
    text += each;
  }
  text += "}";
  return text;
}

TEST_F(SafetensorsTest, round_trips_every_dtype_bit_exactly) {
  std::vector<NamedTensor> tensors;
  for (const auto dtype : {torch::kBool, torch::kUInt8, torch::kInt8, torch::kInt16, torch::kFloat16, torch::kBFloat16, torch::kInt32,
                           torch::kFloat32, torch::kFloat64, torch::kInt64}) {
    tensors.push_back({safetensors_dtype_name(dtype), at::arange(7, torch::kInt32).to(dtype)});
  }
  const std::string path = folder_.path("all.safetensors");
  ASSERT_TRUE(write_safetensors(local_files(), path, tensors, {{"a", "b"}, {"c", "d\n\"é"}}).is_ok());
  const auto file = SafetensorsFile::open(path).value();
  EXPECT_EQ(file->metadata(), (SafetensorsMetadata{{"a", "b"}, {"c", "d\n\"é"}}));
  for (const auto& named : tensors) {
    const auto tensor = file->tensor(named.name).value();
    EXPECT_EQ(tensor.scalar_type(), named.tensor.scalar_type());
    EXPECT_TRUE(at::equal(tensor, named.tensor)) << named.name;
  }
}

TEST_F(SafetensorsTest, keeps_nan_payloads_scalars_and_empty_tensors) {
  const uint32_t odd_nan = 0x7fc12345;
  auto nan = torch::empty({}, torch::kFloat32);
  std::memcpy(nan.data_ptr(), &odd_nan, sizeof odd_nan);
  const std::string path = folder_.path("odd.safetensors");
  ASSERT_TRUE(write_safetensors(local_files(), path, {{"nan", nan}, {"none", torch::empty({0, 5})}}).is_ok());
  const auto file = SafetensorsFile::open(path).value();
  const auto read = file->tensor("nan").value();
  EXPECT_EQ(read.dim(), 0);
  EXPECT_EQ(std::memcmp(read.data_ptr(), &odd_nan, sizeof odd_nan), 0);
  EXPECT_THAT(file->tensor("none").value().sizes().vec(), ElementsAre(0, 5));
}

TEST_F(SafetensorsTest, reads_views_that_outlive_the_file_object_and_never_change_the_file) {
  const std::string path = folder_.path("view.safetensors");
  ASSERT_TRUE(write_safetensors(local_files(), path, {{"x", torch::ones({1000})}}).is_ok());
  const std::string before = read_file(local_files(), path).value();
  auto tensor = SafetensorsFile::open(path).value()->tensor("x").value();
  EXPECT_EQ(tensor.sum().item<float>(), 1000);
  tensor.fill_(2);
  EXPECT_EQ(read_file(local_files(), path).value(), before);
}

TEST_F(SafetensorsTest, writes_the_same_bytes_whatever_the_order_given) {
  const NamedTensor a{"a", torch::ones({3})}, b{"b", torch::zeros({2}, torch::kInt64)}, c{"c", torch::ones({1}, torch::kBool)};
  ASSERT_TRUE(write_safetensors(local_files(), folder_.path("1"), {a, b, c}).is_ok());
  ASSERT_TRUE(write_safetensors(local_files(), folder_.path("2"), {c, b, a}).is_ok());
  const std::string bytes = read_file(local_files(), folder_.path("1")).value();
  EXPECT_EQ(bytes, read_file(local_files(), folder_.path("2")).value());
  // Largest elements first, then by name; the data starts at a multiple of 8.
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  EXPECT_EQ(header_bytes % 8, 0U);
  EXPECT_LT(bytes.find("\"b\""), bytes.find("\"a\""));
  EXPECT_LT(bytes.find("\"a\""), bytes.find("\"c\""));
}

TEST_F(SafetensorsTest, writes_non_contiguous_tensors_in_logical_order) {
  const auto transposed = at::arange(6, torch::kFloat32).reshape({2, 3}).t();
  ASSERT_TRUE(write_safetensors(local_files(), folder_.path("t"), {{"t", transposed}}).is_ok());
  EXPECT_TRUE(at::equal(SafetensorsFile::open(folder_.path("t")).value()->tensor("t").value(), transposed));
}

TEST_F(SafetensorsTest, refuses_to_write_what_is_no_utf8) {
  const std::string path = folder_.path("file");
  for (const Status& status : {write_safetensors_atomic(local_files(), path, {{"a\xff", torch::ones({1})}}),
                               write_safetensors_atomic(local_files(), path, {}, {{"k\xff", "v"}}),
                               write_safetensors_atomic(local_files(), path, {}, {{"k", "v\xff"}})}) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("UTF-8"));
    EXPECT_THAT(status.message(), HasSubstr("\uFFFD"));
  }
  EXPECT_TRUE(local_files().list(folder_.path()).value().empty());
}

TEST_F(SafetensorsTest, accepts_leading_spaces_and_unaligned_data) {
  const std::string header = fmt::format("   {}", header_of({entry("x", "F32", "[2]", "[0,8]")}));
  ASSERT_NE((8 + header.size()) % 4, 0U);
  const auto file = SafetensorsFile::open(write_file(header, 8)).value();
  EXPECT_TRUE(at::equal(file->tensor("x").value(), torch::zeros({2})));
}

TEST_F(SafetensorsTest, names_a_missing_file_and_a_missing_tensor) {
  EXPECT_EQ(SafetensorsFile::open(folder_.path("nowhere")).status().code(), StatusCode::kNotFound);
  const auto file = SafetensorsFile::open(write_file("{}", 0)).value();
  EXPECT_TRUE(file->names().empty());
  EXPECT_EQ(file->tensor("x").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(file->spec("x").status().code(), StatusCode::kNotFound);
}

TEST_F(SafetensorsTest, refuses_files_too_short_for_their_header) {
  std::ofstream(folder_.path("short")) << "1234567";
  EXPECT_EQ(SafetensorsFile::open(folder_.path("short")).status().code(), StatusCode::kCorruptData);
  EXPECT_THAT(open_status("{}", 0, 3).message(), HasSubstr("longer than the file"));
  EXPECT_THAT(open_status("{}", 0, 100'000'001).message(), HasSubstr("100 MB"));
  EXPECT_THAT(open_status("{}", 0, ~uint64_t{0}).message(), HasSubstr("100 MB"));
}

TEST_F(SafetensorsTest, refuses_a_header_that_is_no_json_object) {
  expect_corrupt("", 0, "not one JSON object");
  expect_corrupt("[1]", 0, "not one JSON object");
  expect_corrupt("{\"a\":", 0, "not one JSON object");
  expect_corrupt("{}{}", 0, "not one JSON object");
  expect_corrupt("{\"a\xff\":1}", 0, "not one JSON object");
}

TEST_F(SafetensorsTest, refuses_duplicate_keys_anywhere) {
  const std::string x = entry("x", "U8", "[1]", "[0,1]");
  expect_corrupt(header_of({x, x}), 1, "a key twice: x");
  expect_corrupt(R"({"__metadata__":{"k":"1","k":"2"}})", 0, "a key twice: k");
  expect_corrupt(R"({"x":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, "a key twice: dtype");
}

TEST_F(SafetensorsTest, refuses_deep_nesting_quickly) {
  expect_corrupt(std::string(5'000'000, '['), 0, "nested deeper");
  std::string objects = "{\"x\":";
  objects.append(1000, '{');
  expect_corrupt(objects, 0, "nested deeper");
  expect_corrupt("{\"x\":{{", 0, "JSON");
}

TEST_F(SafetensorsTest, refuses_metadata_that_is_not_text) {
  expect_corrupt(R"({"__metadata__":{"k":1}})", 0, "texts only; wrong key: k");
  expect_corrupt(R"({"__metadata__":[]})", 0, "not an object");
}

TEST_F(SafetensorsTest, refuses_tensors_with_other_fields) {
  expect_corrupt(R"({"x":1})", 0, "exactly dtype, shape and data_offsets");
  expect_corrupt(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":1}})", 1, "exactly dtype");
  expect_corrupt(R"({"x":{"dtype":"U8","shape":[1],"offsets":[0,1]}})", 1, "data_offsets");
  expect_corrupt(header_of({entry("x", "F4", "[1]", "[0,1]")}), 1, "unknown dtype");
}

TEST_F(SafetensorsTest, refuses_numbers_that_are_no_sizes) {
  expect_corrupt(header_of({entry("x", "U8", "[-1]", "[0,1]")}), 1, "whole numbers");
  expect_corrupt(header_of({entry("x", "U8", "[1.0]", "[0,1]")}), 1, "whole numbers");
  expect_corrupt(header_of({entry("x", "U8", "[99999999999999999999999]", "[0,1]")}), 1, "whole numbers");
  expect_corrupt(header_of({entry("x", "U8", "[9223372036854775808]", "[0,1]")}), 1, "whole numbers");
  expect_corrupt(header_of({entry("x", "U8", "[1]", "[0]")}), 1, "not [begin, end]");
  expect_corrupt(header_of({entry("x", "U8", "[1]", "[1,0]")}), 1, "not [begin, end]");
}

TEST_F(SafetensorsTest, refuses_shapes_whose_bytes_overflow_or_disagree) {
  expect_corrupt(header_of({entry("x", "F32", "[4294967296,4294967296]", "[0,4]")}), 4, "overflow");
  expect_corrupt(header_of({entry("x", "F64", "[2305843009213693952]", "[0,8]")}), 8, "overflow");
  expect_corrupt(header_of({entry("x", "F32", "[2]", "[0,4]")}), 4, "disagree");
  for (const char* shape : {"[0,4611686018427387904,4611686018427387904]", "[4611686018427387904,4611686018427387904,0]"}) {
    expect_corrupt(header_of({entry("x", "U8", shape, "[0,0]")}), 0, "overflow");
  }
}

TEST_F(SafetensorsTest, refuses_gaps_overlaps_and_wrong_file_sizes) {
  const std::string x = entry("x", "U8", "[4]", "[0,4]");
  expect_corrupt(header_of({x, entry("y", "U8", "[4]", "[5,9]")}), 9, "gap or overlap");
  expect_corrupt(header_of({x, entry("y", "U8", "[4]", "[3,7]")}), 7, "gap or overlap");
  expect_corrupt(header_of({entry("x", "U8", "[4]", "[1,5]")}), 5, "gap or overlap");
  expect_corrupt(header_of({x}), 3, "disagree");
  expect_corrupt(header_of({x}), 5, "disagree");
}

TEST_F(SafetensorsTest, refuses_every_truncation_of_a_good_file) {
  const std::string path = folder_.path("good");
  ASSERT_TRUE(write_safetensors(local_files(), path, {{"x", torch::ones({3})}, {"y", torch::ones({2}, torch::kInt64)}}).is_ok());
  const std::string bytes = read_file(local_files(), path).value();
  for (size_t size = 0; size < bytes.size(); ++size) {
    std::ofstream(folder_.path("cut"), std::ios::binary) << bytes.substr(0, size);
    EXPECT_EQ(SafetensorsFile::open(folder_.path("cut")).status().code(), StatusCode::kCorruptData) << size;
  }
}

TEST_F(SafetensorsTest, refuses_pickle_files_with_the_command_that_converts_them) {
  const std::string zeros(100, '\0');
  std::ofstream(folder_.path("zip"), std::ios::binary) << "PK\x03\x04" << zeros;
  std::ofstream(folder_.path("old"), std::ios::binary) << "\x80\x02" << zeros;
  for (const char* name : {"zip", "old"}) {
    const Status status = SafetensorsFile::open(folder_.path(name)).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("weights_only=True"));
  }
}

// Their lengths begin with the bytes 80 02, as a pickle does.
TEST_F(SafetensorsTest, headers_of_certain_lengths_are_no_pickle) {
  for (const size_t size : {640, 66176}) {
    std::string header = header_of({entry("x", "F32", "[2]", "[0,8]")});
    header.resize(size, ' ');
    const auto file = SafetensorsFile::open(write_file(header, 8));
    ASSERT_TRUE(file.is_ok()) << file.status().to_string();
    EXPECT_TRUE(at::equal((*file)->tensor("x").value(), torch::zeros({2})));
    EXPECT_EQ(open_status(header, 7).code(), StatusCode::kCorruptData);
    EXPECT_EQ(open_status(header.substr(0, 600), 0, size).code(), StatusCode::kCorruptData) << "cut in its header";
    EXPECT_EQ(open_status("", 0, size).code(), StatusCode::kCorruptData);
  }
}

TEST_F(SafetensorsTest, a_large_pickle_whose_first_bytes_could_be_a_length_is_one) {
  const std::string zeros(1000, '\0');
  std::ofstream(folder_.path("old"), std::ios::binary) << std::string("\x80\x02\0\0\0\0\0\0", 8) << zeros;
  std::ofstream(folder_.path("zip"), std::ios::binary) << std::string("PK\x03\x04\0\0\0\0", 8) << zeros;
  std::filesystem::resize_file(folder_.path("zip"), 70'000'000);
  for (const char* name : {"zip", "old"}) {
    EXPECT_THAT(SafetensorsFile::open(folder_.path(name)).status().message(), HasSubstr("weights_only=True")) << name;
  }
}

TEST_F(SafetensorsTest, writer_refuses_names_twice_and_tensors_out_of_turn) {
  MemoryFileSystem files;
  const auto output = files.create("f").value();
  const auto twice = SafetensorsWriter::begin(*output, {{"x", torch::kFloat32, {1}}, {"x", torch::kFloat32, {1}}}, {});
  EXPECT_EQ(twice.status().code(), StatusCode::kInvalidArgument);
  const auto writer = SafetensorsWriter::begin(*output, {{"b", torch::kFloat32, {1}}, {"a", torch::kFloat32, {2}}}, {}).value();
  EXPECT_EQ(writer->order().front().name, "a");
  EXPECT_EQ(writer->write("b", torch::ones({1})).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(writer->write("a", torch::ones({3})).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(writer->write("a", torch::ones({2})).is_ok());
  EXPECT_EQ(writer->finish().code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(writer->write("b", torch::ones({1})).is_ok());
  EXPECT_TRUE(writer->finish().is_ok());
}

TEST_F(SafetensorsTest, does_not_replace_a_file_and_removes_what_a_failure_left) {
  const std::string path = folder_.path("taken");
  ASSERT_TRUE(write_safetensors(local_files(), path, {}).is_ok());
  EXPECT_EQ(write_safetensors(local_files(), path, {}).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(write_safetensors(local_files(), folder_.path("twice"), {{"x", torch::ones({1})}, {"x", torch::ones({1})}}).code(),
            StatusCode::kInvalidArgument);
  EXPECT_FALSE(local_files().exists(folder_.path("twice")).value());
}

TEST_F(SafetensorsTest, reports_a_full_disk_at_every_call_and_leaves_no_file) {
  MemoryFileSystem memory;
  FaultInjectingFileSystem files(memory);
  const std::vector<NamedTensor> tensors = {{"x", torch::ones({100})}, {"y", torch::ones({3})}};
  ASSERT_TRUE(write_safetensors(files, "whole", tensors).is_ok());
  const int64_t num_calls = files.num_calls();
  for (int64_t call = 0; call < num_calls; ++call) {
    files.fail_call(call, Fault::kShortWrite);
    EXPECT_EQ(write_safetensors(files, "broken", tensors).code(), StatusCode::kResourceExhausted) << call;
    EXPECT_FALSE(memory.exists("broken").value()) << call;
  }
}

}  // namespace
}  // namespace darkroom
