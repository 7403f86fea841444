#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "darkroom/core/sha256.h"
#include "darkroom/ingest/job_run.h"
#include "darkroom/process/latents_layout.h"
#include "darkroom/process/process_encoder.h"
#include "darkroom/process/process_job.h"

namespace darkroom {

/// What stands in for the networks of a job.
struct StubNetworks {
  std::optional<TensorElement> element = {};  ///< Nothing: the dialect's own.
  std::vector<int64_t> latents_shape = {4, 4, 4};
  std::vector<int64_t> states_shape = {ClipTokenizer::kContextLength, 8};
  std::string fingerprint = "stub";
  std::function<void(const PreparedRow&)> on_row = [](const PreparedRow&) {};  ///< Called in the encoders' threads; may throw.
};

/// An encoder without networks: numbers between -1 and 1 that follow from a row's pixels, ids and key. A caption with "nan" gives a row
/// that is not finite.
class StubEncoder : public ProcessEncoder {
 public:
  StubEncoder(std::shared_ptr<const ClipTokenizer> tokenizer, const ProcessJobOptions& job, StubNetworks networks)
      : tokenizer_(std::move(tokenizer)), has_states_(job.text != TextKind::kTokens), networks_(std::move(networks)) {
    facts_.vae_fingerprint = facts_.text_encoder_fingerprint = networks_.fingerprint;
    facts_.scaling_factor = 0.5;
    facts_.latents_shape = networks_.latents_shape;
    facts_.latents_shape[0] *= job.latents == LatentsKind::kMoments ? 2 : 1;
    facts_.states_shape = networks_.states_shape;
    facts_.element = networks_.element.value_or(published_element(job.dialect));
  }

  const EncoderFacts& facts() const override { return facts_; }
  const ClipTokenizer& tokenizer() const override { return *tokenizer_; }
  void begin_worker() const override { is_worker_ = true; }
  StoredRows encode(std::span<const PreparedRow> rows, const std::stop_token& stop) const override {
    EXPECT_TRUE(is_worker_) << "a thread that encodes was not set up";
    EXPECT_FALSE(rows.empty());
    StoredRows encoded{.latents = make_rows(facts_.latents_shape, rows.size()),
                       .states = has_states_ ? make_rows(facts_.states_shape, rows.size()) : RowTensors()};
    for (size_t i = 0; i < rows.size() && !stop.stop_requested(); ++i) {
      networks_.on_row(rows[i]);
      fill(encoded.latents.row(i), digest_of(rows[i], "latents"));
      if (has_states_) {
        fill(encoded.states.row(i), digest_of(rows[i], "states"));
      }
      encoded.is_finite.push_back(rows[i].caption.find("nan") == std::string::npos ? 1 : 0);
    }
    return encoded;
  }
  Result<std::string> publish_empty_caption(const Location& output) const override {
    const std::string bytes(num_values(facts_.states_shape) * static_cast<size_t>(element_bytes(facts_.element)), '\0');
    DARKROOM_ASSIGN_OR_RETURN(const auto object, output.store->begin_object(output.path, "_empty_caption.safetensors"));
    DARKROOM_RETURN_IF_ERROR(object->write(std::as_bytes(std::span(bytes))));
    DARKROOM_RETURN_IF_ERROR(object->publish().status());
    return sha256_hex(bytes);
  }
  Result<TriedEncoder> try_out() const override { return TriedEncoder{.slowest = 10, .fastest = 20}; }
  Status paint_samples(const JobRun& run, const Location& picture) const override {
    return picture.store->replace_small(picture.path, std::to_string(run.plan().parts().size()) + " parts");
  }

  /// What a row's latents are, for tests that compare.
  std::string latents_of(const PreparedRow& row) const {
    const RowTensors one = make_rows(facts_.latents_shape, 1);
    fill(one.bytes, digest_of(row, "latents"));
    return {reinterpret_cast<const char*>(one.bytes.data()), one.bytes.size()};
  }

 private:
  static size_t num_values(const std::vector<int64_t>& shape) {
    size_t product = 1;
    for (const int64_t extent : shape) {
      product *= static_cast<size_t>(extent);
    }
    return product;
  }
  RowTensors make_rows(const std::vector<int64_t>& shape, size_t num_rows) const {
    const size_t row_bytes = num_values(shape) * static_cast<size_t>(element_bytes(facts_.element));
    const auto memory = std::make_shared<std::vector<std::byte>>(row_bytes * num_rows);
    return {.bytes = *memory, .row_bytes = row_bytes, .owner = memory};
  }
  static std::string digest_of(const PreparedRow& row, const std::string& what) {
    Sha256 sha;
    sha.update(row.key + "\n" + what + "\n");
    sha.update({reinterpret_cast<const char*>(row.square.pixels.data()), row.square.pixels.size()});
    sha.update({reinterpret_cast<const char*>(row.ids.data()), row.ids.size() * sizeof(int32_t)});
    return sha.finish_hex();
  }
  /// The memory is make_rows'.
  void fill(std::span<const std::byte> row, const std::string& digest) const {
    auto* out = const_cast<std::byte*>(row.data());
    const auto width = static_cast<size_t>(element_bytes(facts_.element));
    for (size_t i = 0; i < row.size() / width; ++i) {
      const auto letter = static_cast<unsigned char>(digest[(i * 7) % digest.size()]);
      const float value = static_cast<float>((letter * 31 + i) % 2048) / 1024.0F - 1.0F;
      const uint16_t half = half_bits(value);
      std::memcpy(out + i * width, width == sizeof half ? static_cast<const void*>(&half) : &value, width);
    }
  }

  const std::shared_ptr<const ClipTokenizer> tokenizer_;  // Shared by the jobs of a test program.
  const bool has_states_;
  const StubNetworks networks_;
  EncoderFacts facts_;
  inline static thread_local bool is_worker_ = false;
};

}  // namespace darkroom
