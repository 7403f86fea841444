#include "darkroom/encode/remote_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "darkroom/core/version.h"
#include "darkroom/encode/encoder_service.h"
#include "darkroom/encode/online_source.h"
#include "encode/slice_columns.h"
#include "process_fixture.h"
#include "support/packed_stream.h"
#include "support/source_path.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Encoder services in this process, and a trainer's source that asks them.
class RemoteSourceTest : public ProcessJob {
 protected:
  void SetUp() override {
    std::vector<ImageRow> rows = good_rows(40);
    rows[5].image.clear();
    rows[6].image = "no picture";
    write_images("part-000000.parquet", rows);
    dataset_ = *find_local_dataset(folder_.path("images"));
    index_ = *DatasetIndex::of_images(dataset_, 10);
    models_here_ = *load_frozen_models(local_files(), models_->path(), TokenizerDialect::kHuggingFace);
  }

  EncoderServiceOptions service_options() const {
    EncoderServiceOptions options;
    options.process = this->options();
    options.process.num_encoders = 2;
    options.process.memory_bytes = int64_t{1} << 28;
    options.address = *parse_listen_address("127.0.0.1:0");
    return options;
  }
  std::unique_ptr<EncoderService> start(const EncoderServiceOptions& options) {
    auto service = EncoderService::start(stores_, options, {});
    EXPECT_TRUE(service.is_ok()) << service.status().to_string();
    return *std::move(service);
  }
  std::unique_ptr<EncoderService> start() { return start(service_options()); }
  std::shared_ptr<const RowEncoder> encoder(int resolution = kProcessSide) const {
    RowEncoderOptions options;
    options.transform.resolution = resolution;
    return *RowEncoder::create(models_here_, options);
  }
  static RemoteSourceOptions source_options(const std::string& encoders) {
    RemoteSourceOptions options;
    options.fleet.encoders = encoders;
    options.fleet.look = std::chrono::milliseconds(10);
    return options;
  }
  std::unique_ptr<RemoteSource> open(const RemoteSourceOptions& options) {
    auto source = RemoteSource::open(dataset_, index_, *encoder(), options);
    EXPECT_TRUE(source.is_ok()) << source.status().to_string();
    return *std::move(source);
  }
  std::unique_ptr<OnlineSource> open_here() { return *OnlineSource::open(dataset_, index_, encoder(), {}); }

  static std::vector<SampleRef> samples(int64_t first, int64_t count, uint32_t epoch = 0) {
    std::vector<SampleRef> refs;
    for (int64_t i = 0; i < count; ++i) {
      refs.push_back({epoch, (first + 7 * i) % 40});
    }
    return refs;
  }
  static void expect_same(const Result<Batch>& got, const Result<Batch>& want) {
    ASSERT_TRUE(got.is_ok()) << got.status().to_string();
    ASSERT_TRUE(want.is_ok()) << want.status().to_string();
    EXPECT_EQ(got->keys, want->keys);
    EXPECT_TRUE(torch::equal(got->latents_nchw, want->latents_nchw));
    EXPECT_TRUE(torch::equal(got->states_btc, want->states_btc));
  }

  DatasetFiles dataset_;
  DatasetIndex index_{{}};
  std::shared_ptr<const FrozenModels> models_here_;
};

TEST_F(RemoteSourceTest, gives_the_bits_of_encoding_here_whatever_is_expected) {
  const auto one = start(), two = start();
  const auto source = open(source_options(one->address().to_string() + "," + two->address().to_string()));
  const auto here = open_here();
  for (int64_t batch = 0; batch < 3; ++batch) {
    source->expect(samples(batch, 20));
  }
  for (int64_t batch = 0; batch < 3; ++batch) {
    expect_same(source->read(samples(batch, 20)), here->read(samples(batch, 20)));
  }
  expect_same(source->read(samples(2, 9, 1)), here->read(samples(2, 9, 1)));  // Not expected.
  EXPECT_EQ(source->report().encoders, 2);
  EXPECT_EQ(source->describe(3), here->describe(3));
}

TEST_F(RemoteSourceTest, does_not_ask_twice_for_a_row_that_is_kept_or_on_its_way) {
  const auto service = start();
  const auto source = open(source_options(service->address().to_string()));
  source->expect(samples(0, 10));
  source->expect(samples(0, 10, 1));
  source->expect(samples(0, 10, 2));
  for (uint32_t epoch = 0; epoch < 4; ++epoch) {
    ASSERT_TRUE(source->read(samples(0, 10, epoch)).is_ok());
  }
  EXPECT_EQ(source->report().rows, 10);
  EXPECT_EQ(service->counts().rows, 10);
}

TEST_F(RemoteSourceTest, with_no_memory_for_rows_asks_again_and_gets_the_same) {
  const auto service = start();
  RemoteSourceOptions options = source_options(service->address().to_string());
  options.memory_bytes = 1;
  const auto source = open(options);
  const auto here = open_here();
  for (int again = 0; again < 2; ++again) {
    source->expect(samples(3, 8));
    expect_same(source->read(samples(3, 8)), here->read(samples(3, 8)));
  }
  EXPECT_GT(source->report().rows, 8);
}

TEST_F(RemoteSourceTest, reads_on_with_the_encoder_that_is_left) {
  auto one = start();
  const auto two = start();
  RemoteSourceOptions options = source_options(one->address().to_string() + "," + two->address().to_string());
  options.memory_bytes = 1;
  const auto source = open(options);
  const auto here = open_here();
  for (int64_t batch = 0; batch < 6; ++batch) {
    source->expect(samples(batch, 16));
    if (batch == 2) {
      one.reset();
    }
    expect_same(source->read(samples(batch, 16)), here->read(samples(batch, 16)));
  }
}

TEST_F(RemoteSourceTest, an_encoder_with_other_settings_is_refused_with_both_values) {
  EncoderServiceOptions options = service_options();
  options.process.transform.resolution = 64;
  const auto service = start(options);
  const Status other_size = RemoteSource::open(dataset_, index_, *encoder(), source_options(service->address().to_string())).status();
  EXPECT_EQ(other_size.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(other_size.message(), AllOf(HasSubstr("64"), HasSubstr("32")));

  const TinyModelFolder other(2);
  options = service_options();
  options.process.model = other.path();
  const auto service_2 = start(options);
  EXPECT_THAT(RemoteSource::open(dataset_, index_, *encoder(), source_options(service_2->address().to_string())).status().message(),
              HasSubstr("fingerprint"));

  options = service_options();
  options.process.rows_per_file = 7;
  const auto service_3 = start(options);
  EXPECT_THAT(RemoteSource::open(dataset_, index_, *encoder(), source_options(service_3->address().to_string())).status().message(),
              HasSubstr("dataset (index hash)"));
}

TEST_F(RemoteSourceTest, an_encoder_with_another_tokenizer_is_refused) {
  const std::string other = folder_.path("other");
  for (const char* part : {"vae", "text_encoder"}) {
    std::filesystem::create_directories(other);
    std::filesystem::copy(models_->path(part), other + "/" + part, std::filesystem::copy_options::recursive);
  }
  const std::string shipped = source_path("models/tiny/tokenizer/");
  std::filesystem::create_directories(other + "/tokenizer");
  for (const char* name : {"vocab.json", "tokenizer_config.json", "special_tokens_map.json"}) {
    std::filesystem::copy(shipped + name, other + "/tokenizer/" + name);
  }
  std::string merges = *read_file(local_files(), shipped + "merges.txt");
  const size_t first = merges.find('\n') + 1, second = merges.find('\n', first) + 1, third = merges.find('\n', second) + 1;
  merges = merges.substr(0, first) + merges.substr(second, third - second) + merges.substr(first, second - first) + merges.substr(third);
  ASSERT_TRUE(write_file_atomic(local_files(), other + "/tokenizer/merges.txt", merges).is_ok());
  EncoderServiceOptions options = service_options();
  options.process.model = other;
  const auto service = start(options);
  const Status status = RemoteSource::open(dataset_, index_, *encoder(), source_options(service->address().to_string())).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("tokenizer (fingerprint)"));
}

TEST_F(RemoteSourceTest, what_must_be_alike_has_the_version_of_the_program) {
  EXPECT_EQ(slice_facts(index_, *encoder())["version"], kVersion);
}

TEST_F(RemoteSourceTest, a_service_beyond_loopback_wants_a_token) {
  EncoderServiceOptions options = service_options();
  options.address = *parse_listen_address("0.0.0.0:0");
  const Status refused = EncoderService::start(stores_, options, {}).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("DARKROOM_ENCODER_TOKEN"));
  options.address = *parse_listen_address("[::]:0");
  EXPECT_EQ(EncoderService::start(stores_, options, {}).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(RemoteSourceTest, a_service_without_dataset_model_or_decoder_does_not_start) {
  EncoderServiceOptions options = service_options();
  options.process.input = folder_.path("none");
  EXPECT_EQ(EncoderService::start(stores_, options, {}).status().code(), StatusCode::kNotFound);
  options = service_options();
  options.process.model = folder_.path("none");
  EXPECT_EQ(EncoderService::start(stores_, options, {}).status().code(), StatusCode::kNotFound);
  options = service_options();
  options.process.decoder_program = folder_.path("none");
  EXPECT_EQ(EncoderService::start(stores_, options, {}).status().code(), StatusCode::kNotFound);
  options = service_options();
  options.process.encoder_threads = 0;
  EXPECT_EQ(EncoderService::start(stores_, options, {}).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(RemoteSourceTest, rows_together_have_the_bits_of_process_with_that_batch) {
  EncoderServiceOptions options = service_options();
  options.process.batching = Batching::kTogether;
  const auto service = start(options);
  const auto source = open(source_options(service->address().to_string()));
  RowEncoderOptions together;
  together.transform.resolution = kProcessSide;
  together.rows_together = options.process.batch_size;
  const auto here = *OnlineSource::open(dataset_, index_, *RowEncoder::create(models_here_, together), {});
  for (int64_t batch = 0; batch < 2; ++batch) {
    expect_same(source->read(samples(batch, 11)), here->read(samples(batch, 11)));
  }
}

class SliceColumns : public testing::Test {
 protected:
  std::string stream(const SliceForm& form, const std::vector<int64_t>& rows) const {
    std::vector<std::shared_ptr<const EncodedRow>> encoded;
    for (const int64_t row : rows) {
      encoded.push_back(
          std::make_shared<EncodedRow>(EncodedRow{"key-" + std::to_string(row), torch::full(form.latents_shape, row, form.dtype),
                                                  torch::full(form.states_shape, -row, form.dtype)}));
    }
    return *write_slice(form, rows, encoded);
  }
  SliceForm form_{.dtype = torch::kFloat16, .latents_shape = {4, 2, 2}, .states_shape = {3, 5}};
  std::vector<int64_t> rows_ = {7, 0, 7, 12};
};

TEST_F(SliceColumns, come_back_as_they_were_sent) {
  for (const torch::Dtype dtype : {torch::kFloat16, torch::kFloat32}) {
    form_.dtype = dtype;
    const auto slice = read_slice(form_, rows_, stream(form_, rows_));
    ASSERT_TRUE(slice.is_ok()) << slice.status().to_string();
    EXPECT_EQ((*slice)->keys, (std::vector<std::string>{"key-7", "key-0", "key-7", "key-12"}));
    EXPECT_TRUE(torch::equal((*slice)->latents_nchw[3], torch::full({4, 2, 2}, 12, dtype)));
    EXPECT_TRUE(torch::equal((*slice)->states_btc[0], torch::full({3, 5}, -7, dtype)));
  }
}

TEST_F(SliceColumns, of_other_rows_types_or_shapes_are_refused) {
  const std::string bytes = stream(form_, rows_);
  const std::vector<int64_t> fewer = {7, 0, 7}, others = {7, 0, 8, 12};
  EXPECT_EQ(read_slice(form_, fewer, bytes).status().code(), StatusCode::kCorruptData);
  EXPECT_THAT(read_slice(form_, rows_, packed_stream(bytes)).status().message(), HasSubstr("packed"));
  EXPECT_THAT(read_slice(form_, others, bytes).status().message(), AllOf(HasSubstr("7"), HasSubstr("8")));
  SliceForm other = form_;
  other.dtype = torch::kFloat32;
  EXPECT_FALSE(read_slice(other, rows_, bytes).is_ok());
  other = form_;
  other.latents_shape = {4, 4};
  EXPECT_FALSE(read_slice(other, rows_, bytes).is_ok());
  other = form_;
  other.states_shape = {5, 3};
  EXPECT_FALSE(read_slice(other, rows_, bytes).is_ok());
}

TEST_F(SliceColumns, that_are_cut_or_changed_anywhere_end_no_trainer) {
  const std::string bytes = stream(form_, rows_);
  for (size_t length = 0; length + 8 < bytes.size(); length += 3) {  // Behind the last batch there is an end mark, which may lack.
    const auto slice = read_slice(form_, rows_, bytes.substr(0, length));
    EXPECT_FALSE(slice.is_ok() && (*slice)->keys.size() != rows_.size()) << length;
  }
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 0x55);
    const auto slice = read_slice(form_, rows_, changed);  // A changed number is a number; all else is refused.
    EXPECT_TRUE(!slice.is_ok() || (*slice)->keys.size() == rows_.size()) << at;
  }
}

}  // namespace
}  // namespace darkroom
