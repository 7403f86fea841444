#include <arrow/api.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/used_up_memory.h"
#include "darkroom/encode/record_batches.h"
#include "darkroom/nn/placement.h"
#include "darkroom/tables/tensor_column.h"
#include "darkroom/tensor/device_runtime.h"
#include "darkroom/tensor/gpu_turn.h"
#include "on_fake_device.h"
#include "unit/encode/process_fixture.h"
#include "unit/paint/tiny_painter.h"

// Painting and encoding on the fake device: the same kernels as on the CPU, so the same bits, and how often host and device wait.

namespace darkroom {
namespace {

const NetworkPlace kThere{.device = torch::Device("cuda:0"), .type = torch::kFloat32};

NetworkPlace place_with(const NetworkPlace& place, torch::ScalarType type) { return {.device = place.device, .type = type}; }

class PaintingOnDevice : public OnFakeDevice {
 protected:
  /// As open_painter places them: the VAE in float32.
  static void place(TinyModel& model, const NetworkPlace& place) {
    place_network(*model.unet, place);
    place_network(*model.text_encoder, place);
    place_network(*model.vae, place_with(place, torch::kFloat32));
  }
  static PaintRequest request(std::string_view sampler, int num_steps) {
    PaintRequest request = request_of({"a red apple", "a dog"}, {3, 4}, num_steps);
    request.sampler.name = sampler;
    request.negative = "blurry";
    request.guidance_rescale = 0.5;
    return request;
  }
  static FakeDeviceCounts counts_of(Painter& painter, const PaintRequest& request) {
    const FakeDeviceCounts before = *fake_device_counts();
    EXPECT_TRUE(painter.paint(request).is_ok());
    FakeDeviceCounts counts = *fake_device_counts();
    counts.host_to_device -= before.host_to_device;
    counts.device_to_host -= before.device_to_host;
    counts.synchronisations -= before.synchronisations;
    counts.replays -= before.replays;
    return counts;
  }
};

TEST_F(PaintingOnDevice, every_sampler_paints_the_cpus_bits) {
  for (const torch::ScalarType type : {torch::kFloat32, torch::kBFloat16}) {
    TinyModel here, there;
    place(here, place_with({}, type));
    place(there, place_with(kThere, type));
    const auto painter_here = here.painter().value();
    const auto painter_there = there.painter().value();
    EXPECT_EQ(painter_there->place(), place_with(kThere, type));
    for (const std::string_view name : sampler_names()) {
      const Painting want = painter_here->paint(request(name, 14)).value();
      const int64_t replays = fake_device_counts()->replays;
      const Painting got = painter_there->paint(request(name, 14)).value();
      EXPECT_GT(fake_device_counts()->replays, replays) << name;
      EXPECT_TRUE(torch::equal(got.latents_nchw, want.latents_nchw)) << name << " " << torch::toString(type);
      EXPECT_EQ(got.images, want.images) << name << " " << torch::toString(type);
    }
  }
}

TEST_F(PaintingOnDevice, starts_from_a_picture_or_from_latents_with_the_cpus_bits) {
  TinyModel there;
  place(there, kThere);
  const auto painter_there = there.painter().value();
  PaintRequest from_picture = request("ddim", 6);
  from_picture.init_images = {Image::filled(64, 64, 3, 90)};
  PaintRequest from_latents = request("ddim", 6);
  from_latents.unit_noise_nchw = torch::full({2, 4, 8, 8}, 0.5);
  for (const PaintRequest& asked : {from_picture, from_latents}) {
    EXPECT_TRUE(torch::equal(painter_there->paint(asked)->latents_nchw, painter().paint(asked)->latents_nchw));
  }
}

// With fewer calls than it takes to record one, and with more.
TEST_F(PaintingOnDevice, every_sampler_starts_from_a_picture_with_the_cpus_bits_for_any_number_of_calls) {
  for (const std::string_view name : sampler_names()) {
    for (const double strength : {0.1, 0.9}) {
      TinyModel there;
      place(there, kThere);
      PaintRequest asked = request(name, 14);
      asked.init_images = {Image::filled(64, 64, 3, 90)};
      asked.strength = strength;
      const int64_t replays = fake_device_counts()->replays;
      const torch::Tensor got = there.painter().value()->paint(asked)->latents_nchw;
      EXPECT_TRUE(torch::equal(got, painter().paint(asked)->latents_nchw)) << name << " " << strength;
      EXPECT_EQ(fake_device_counts()->replays > replays, strength > 0.5) << name << " " << strength;
    }
  }
}

TEST_F(PaintingOnDevice, networks_that_lie_apart_paint_the_same) {
  TinyModel there;
  place_network(*there.unet, kThere);  // As a trainer's.
  const PaintRequest asked = request("ddim", 6);
  EXPECT_TRUE(torch::equal(there.painter().value()->paint(asked)->latents_nchw, painter().paint(asked)->latents_nchw));
}

// What a step costs is the difference of two runs.
TEST_F(PaintingOnDevice, a_step_waits_for_nothing_and_copies_nothing_but_the_noise_of_a_stochastic_sampler) {
  TinyModel there;
  place(there, place_with(kThere, torch::kBFloat16));
  const auto painter_there = there.painter().value();
  for (const std::string_view name : sampler_names()) {
    const FakeDeviceCounts few = counts_of(*painter_there, request(name, 14));
    const FakeDeviceCounts more = counts_of(*painter_there, request(name, 18));
    const bool is_stochastic = make_sampler(request(name, 6).sampler, painter_there->scheduler()).value()->is_stochastic();
    EXPECT_EQ(more.host_to_device - few.host_to_device, is_stochastic ? 4 : 0) << name;
    EXPECT_EQ(more.device_to_host, few.device_to_host) << name;
    EXPECT_EQ(more.synchronisations, few.synchronisations) << name;
    EXPECT_EQ(more.replays - few.replays, 4) << name;
  }
}

// As in a training run, whose tensors leave little room.
TEST_F(PaintingOnDevice, pictures_are_decoded_one_by_one_where_memory_does_not_do_for_all) {
  TinyModel there;
  place(there, kThere);
  const auto painter_there = there.painter().value();
  const torch::Tensor latents = torch::linspace(-1, 1, 8 * 4 * 8 * 8).view({8, 4, 8, 8});
  const auto most_bytes = [&](int64_t count) {
    reset_peak_memory(kThere.device);
    static_cast<void>(painter_there->decode(latents.narrow(0, 0, count)));
    return fake_device_counts()->peak_bytes;
  };
  const int64_t of_one = most_bytes(1), of_all = most_bytes(8);
  ASSERT_GT(of_all, 2 * of_one - fake_device_counts()->live_bytes);
  bound_fake_device_memory((of_one + of_all) / 2);
  std::vector<Image> want;  // Alone, which has other last bits than in company.
  for (const torch::Tensor& picture : latents.split(1)) {
    want.push_back(painter().decode(picture).front());
  }
  EXPECT_EQ(painter_there->decode(latents), want);
  bound_fake_device_memory(fake_device_counts()->live_bytes + 1);
  EXPECT_THROW(static_cast<void>(painter_there->decode(latents)), c10::OutOfMemoryError);
  bound_fake_device_memory(0);
}

TEST_F(PaintingOnDevice, few_steps_are_not_recorded) {
  TinyModel there;
  place(there, place_with(kThere, torch::kFloat32));
  EXPECT_EQ(counts_of(*there.painter().value(), request("ddim", 6)).replays, 0);
}

class EncodingOnDevice : public ProcessJob {
 protected:
  static void SetUpTestSuite() {
    ProcessJob::SetUpTestSuite();
    load_fake_device();
  }
  void SetUp() override { at::set_num_threads(1); }

  static std::shared_ptr<const RowEncoder> encoder(const NetworkPlace& place, RowEncoderOptions options) {
    options.transform.resolution = kProcessSide;
    return *RowEncoder::create(*load_frozen_models(local_files(), models_->path(), TokenizerDialect::kHuggingFace, place), options);
  }
  static std::vector<PreparedRow> prepared_rows(const RowEncoder& encoder, int num_rows) {
    const auto decoder = decoder_in_process();
    std::vector<PreparedRow> rows;
    for (const ImageRow& row : good_rows(num_rows)) {
      rows.push_back(encoder.prepare(row, *decoder)->value());
    }
    return rows;
  }
  std::string values_of(const std::string& output) {
    std::string all;
    const auto table = read_table(part(0, output));
    for (const auto& [name, shape] :
         {std::pair("image_latents_32", std::vector<int64_t>{4, 4, 4}), std::pair("caption_embeddings", std::vector<int64_t>{77, 128})}) {
      auto column = TensorColumn::open(*table->schema()->GetFieldByName(name), table->GetColumnByName(name)->chunk(0), shape);
      for (int64_t row = 0; row < table->num_rows(); ++row) {
        const auto bytes = column->bytes(row);
        all.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      }
    }
    return all;
  }
};

TEST_F(EncodingOnDevice, rows_have_the_cpus_bits) {
  for (const torch::ScalarType type : {torch::kFloat32, torch::kBFloat16}) {
    for (const int together : {1, 3}) {
      for (const LatentsKind latents : {LatentsKind::kSample, LatentsKind::kMoments}) {
        const RowEncoderOptions options{.transform = {.resolution = 32}, .latents = latents, .rows_together = together, .seed = 7};
        const auto here = encoder(place_with({}, type), options);
        const auto there = encoder(place_with(kThere, type), options);
        EXPECT_EQ(there->place(), place_with(kThere, type));
        EXPECT_EQ(there->models().vae_fingerprint, here->models().vae_fingerprint);
        const std::vector<PreparedRow> rows = prepared_rows(*here, 5);
        const EncodedRows want = here->encode(rows);
        const EncodedRows got = there->encode(rows);
        EXPECT_TRUE(torch::equal(got.latents_nchw, want.latents_nchw)) << torch::toString(type) << " " << together;
        EXPECT_TRUE(torch::equal(got.states_btc, want.states_btc)) << torch::toString(type) << " " << together;
        EXPECT_TRUE(torch::equal(got.ids_bt, want.ids_bt));
        EXPECT_EQ(got.is_finite, want.is_finite);
        EXPECT_TRUE(torch::equal(there->empty_caption_states(), here->empty_caption_states()));
      }
    }
  }
}

TEST_F(EncodingOnDevice, a_batch_costs_three_copies_each_way_and_one_wait) {
  const auto there = encoder(kThere, {.transform = {.resolution = 32}, .rows_together = 3});
  const std::vector<PreparedRow> rows = prepared_rows(*there, 6);
  const FakeDeviceCounts before = *fake_device_counts();
  static_cast<void>(there->encode(rows));
  const FakeDeviceCounts after = *fake_device_counts();
  EXPECT_EQ(after.host_to_device - before.host_to_device, 6);  // Pixels, keys, ids.
  EXPECT_EQ(after.device_to_host - before.device_to_host, 6);  // Latents, states, which rows are finite.
  EXPECT_EQ(after.event_waits - before.event_waits, 1);        // For this batch, not for all that the device has to do.
  EXPECT_EQ(after.synchronisations - before.synchronisations, 0);
}

TEST_F(EncodingOnDevice, memory_that_is_used_up_is_told_with_what_to_do) {
  write_images("part-000000.parquet", good_rows(9));
  ProcessOptions job = options("there");
  job.place = kThere;
  const auto there = encoder(kThere, {.transform = {.resolution = 32}, .rows_together = 3});
  const std::vector<PreparedRow> rows = prepared_rows(*there, 6);
  bound_fake_device_memory(fake_device_counts()->live_bytes + 1);
  EXPECT_THROW(static_cast<void>(there->encode(rows)), GpuMemoryUsedUp);
  EXPECT_THROW(static_cast<void>(there->empty_caption_states()), GpuMemoryUsedUp);
  // The weights come in, and the empty caption's states, which are few; then nothing else does.
  constexpr int64_t kWeights = 64 << 20;
  bound_fake_device_memory(fake_device_counts()->live_bytes + kWeights);
  job.batching = Batching::kTogether;
  job.batch_size = 4096;
  const Status status = failure(job);
  bound_fake_device_memory(0);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.to_string();
  EXPECT_NE(status.message().find("the GPU's memory is used up; what was committed is safe: lower the batch size"), std::string::npos)
      << status.to_string();
}

TEST_F(EncodingOnDevice, a_batch_encoder_works_in_its_turn) {
  arrow::StringBuilder keys, captions;
  arrow::BinaryBuilder images;
  for (const ImageRow& row : good_rows(2)) {
    ASSERT_TRUE((keys.Append(row.key) & captions.Append(row.caption) & images.Append(row.image)).ok());
  }
  const auto schema =
      arrow::schema({arrow::field("key", arrow::utf8()), arrow::field("caption", arrow::utf8()), arrow::field("image", arrow::binary())});
  const auto batch = arrow::RecordBatch::Make(schema, 2, {*keys.Finish(), *captions.Finish(), *images.Finish()});
  GpuTurn turn;
  ProcessOptions job = options();
  job.place = kThere;
  const auto open = [&] { return BatchEncoder::open(stores_, job, {}, &turn).value(); };
  const auto expect_waits = [&](auto work) {  // For `turn`, which another has.
    std::unique_lock other(turn);
    const FakeDeviceCounts before = *fake_device_counts();
    auto done = std::async(std::launch::async, work);
    EXPECT_EQ(done.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
    EXPECT_EQ(fake_device_counts()->kernels, before.kernels);
    EXPECT_EQ(fake_device_counts()->host_to_device, before.host_to_device);
    other.unlock();
    return done.get();
  };
  const auto there = expect_waits(open);
  EXPECT_EQ(expect_waits([&] { return there->encode(batch).value().tally.rows_out; }), 2);
  job.place = {};
  const std::lock_guard other(turn);
  EXPECT_EQ(open()->encode(batch)->tally.rows_out, 2) << "on the CPU nobody waits";
}

TEST_F(EncodingOnDevice, process_stores_the_cpus_values_and_is_another_job) {
  write_images("part-000000.parquet", good_rows(9));
  for (const Batching batching : {Batching::kAlone, Batching::kTogether}) {
    ProcessOptions job = options("here");
    job.batching = batching;
    process(job);
    job.place = kThere;
    EXPECT_NE(failure(job).message().find("device (had"), std::string::npos) << failure(job).message();
    job.output = folder_.path("there");
    job.num_encoders = 2;
    process(job);
    EXPECT_EQ(values_of("there"), values_of("here"));
    std::filesystem::remove_all(folder_.path("here"));
    std::filesystem::remove_all(folder_.path("there"));
  }
}

}  // namespace
}  // namespace darkroom
