#include "darkroom/process/arrived_batch.h"

#include <arrow/array.h>
#include <arrow/builder.h>
#include <arrow/type.h>
#include <arrow/util/key_value_metadata.h>
#include <gmock/gmock.h>

#include <cstring>
#include <vector>

#include "support/packed_stream.h"

namespace darkroom {
namespace {

using testing::HasSubstr;

std::shared_ptr<arrow::RecordBatch> batch_of(const std::vector<std::string>& keys, const arrow::KeyValueMetadata& words = {}) {
  arrow::StringBuilder builder;
  EXPECT_TRUE(builder.AppendValues(keys).ok());
  const auto schema = arrow::schema({arrow::field("key", arrow::utf8())}, words.Copy());
  return arrow::RecordBatch::Make(schema, static_cast<int64_t>(keys.size()), {builder.Finish().ValueOrDie()});
}

std::string stream_of(const arrow::RecordBatch& batch) {
  const auto sink = arrow::io::BufferOutputStream::Create().ValueOrDie();
  const auto writer = arrow::ipc::MakeStreamWriter(sink, batch.schema()).ValueOrDie();
  EXPECT_TRUE(writer->WriteRecordBatch(batch).ok());
  EXPECT_TRUE(writer->Close().ok());
  return sink->Finish().ValueOrDie()->ToString();
}

Status read(const std::string& bytes) { return read_arrived_batch(bytes, "it").status(); }

/// As that of `from`, of as many bytes.
void change(std::string& bytes, const std::string& from, const std::string& to) {
  const size_t at = bytes.find(from);
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, from.size(), to);
}

TEST(ArrivedBatch, one_that_unpacks_to_no_byte_is_refused) {
  const std::string nothing("\x04\x22\x4d\x18\x60\x40\x82\0\0\0\0", 11);  // A frame of LZ4.
  const std::string bytes = stream_of(*batch_of({"eleven-keys"}));
  EXPECT_TRUE(read(bytes).is_ok()) << read(bytes).message();
  std::string packed = packed_stream(bytes, 1);
  ASSERT_TRUE(read(packed).is_ok()) << read(packed).message();
  const std::string alone(8, '\xff'), zeros(8, '\0');
  change(packed, alone + "eleven-keys", zeros + nothing);                       // Of the text; a buffer of no byte would be made.
  change(packed, alone + std::string("\0\0\0\0\x0b\0\0\0", 8), alone + zeros);  // Where it ends.
  EXPECT_THAT(read(packed).message(), HasSubstr("packed"));
}

TEST(ArrivedBatch, metadata_is_bounded) {
  const auto words_of = [](size_t size) { return stream_of(*batch_of({"k"}, {{"word"}, {std::string(size, 'x')}})); };
  EXPECT_TRUE(read(words_of(60'000)).is_ok()) << read(words_of(60'000)).message();
  EXPECT_THAT(read(words_of(70'000)).message(), HasSubstr("65536"));
}

TEST(ArrivedBatch, metadata_that_names_a_text_again_is_refused) {
  std::string bytes = stream_of(*batch_of({"k"}, {{"one", "two"}, {std::string(1'000, 'x'), "YYYY"}}));
  ASSERT_TRUE(read(bytes).is_ok()) << read(bytes).message();
  const size_t first = bytes.find("xxxx") - sizeof(uint32_t), second = bytes.find("YYYY") - sizeof(uint32_t);
  int num_changed = 0;
  for (size_t at = 0; at < second; at += sizeof(uint32_t)) {  // Texts are named by how far they are.
    uint32_t distance = 0;
    std::memcpy(&distance, bytes.data() + at, sizeof distance);
    if (at + distance == second && at < first) {
      distance = static_cast<uint32_t>(first - at);
      std::memcpy(bytes.data() + at, &distance, sizeof distance);
      ++num_changed;
    }
  }
  ASSERT_EQ(num_changed, 1);
  EXPECT_THAT(read(bytes).message(), HasSubstr("no plain schema"));
}

TEST(ArrivedBatch, what_is_no_schema_and_batch_is_refused) {
  arrow::StringDictionaryBuilder builder;
  ASSERT_TRUE(builder.Append("k").ok());
  const auto column = builder.Finish().ValueOrDie();
  const auto schema = arrow::schema({arrow::field("key", column->type())});
  const std::string good = stream_of(*batch_of({"k"}));
  for (const std::string& bytes : {std::string(), std::string(4, '\xff'), std::string(64, '\xff'), good.substr(0, good.size() / 2),
                                   good.substr(8), stream_of(*arrow::RecordBatch::Make(schema, 1, {column}))}) {
    EXPECT_EQ(read(bytes).code(), StatusCode::kCorruptData);
  }
}

}  // namespace
}  // namespace darkroom
