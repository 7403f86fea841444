#include "empty_caption.h"

#include <algorithm>

#include "darkroom/batches/latents_info.h"
#include "darkroom/core/log.h"
#include "darkroom/core/sha256.h"
#include "darkroom/files/paths.h"
#include "darkroom/tables/part_name.h"
#include "darkroom/tensor/safetensors.h"
#include "tried_encoder.h"

namespace darkroom {
namespace {

/// The file's bytes in memory.
class TextFile : public OutputFile {
 public:
  const std::string& path() const override { return path_; }
  Status write(std::span<const std::byte> bytes) override {
    text_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return Status::ok();
  }
  Status sync() override { return Status::ok(); }
  Status close() override { return Status::ok(); }
  const std::string& text() const { return text_; }

 private:
  const std::string path_ = kEmptyCaptionFile;
  std::string text_;
};

Result<std::string> make_file(const torch::Tensor& states_tw, const std::string& text_encoder_fingerprint) {
  TextFile file;
  const TensorSpec spec{.name = "caption_embeddings", .dtype = states_tw.scalar_type(), .shape = states_tw.sizes().vec()};
  DARKROOM_ASSIGN_OR_RETURN(const auto writer, SafetensorsWriter::begin(file, {spec}, {{kTextEncoderKey, text_encoder_fingerprint}}));
  DARKROOM_RETURN_IF_ERROR(writer->write(spec.name, states_tw));
  DARKROOM_RETURN_IF_ERROR(writer->finish());
  return file.text();
}

Result<bool> has_parts(const Location& folder) {
  DARKROOM_ASSIGN_OR_RETURN(const auto entries, folder.store->list(folder.path));
  return std::ranges::any_of(entries, [](const FileInfo& entry) { return PartName::parse(file_name(entry.path)).has_value(); });
}

}  // namespace

Result<std::string> publish_empty_caption(const RowEncoder& encoder, int encoder_threads, const Location& output) {
  torch::Tensor states_tw;
  DARKROOM_RETURN_IF_ERROR(run_apart(encoder_threads, "encoding the empty caption", [&] { states_tw = encoder.empty_caption_states(); }));
  const std::string sha256 = sha256_hex({static_cast<const char*>(states_tw.const_data_ptr()), states_tw.nbytes()});
  const std::string& made_by = encoder.models().text_encoder_fingerprint;
  DARKROOM_ASSIGN_OR_RETURN(const std::string bytes, make_file(states_tw, made_by));
  DARKROOM_ASSIGN_OR_RETURN(const auto object, output.store->begin_object(output.path, kEmptyCaptionFile));
  DARKROOM_RETURN_IF_ERROR(object->write_text(bytes));
  DARKROOM_ASSIGN_OR_RETURN(const PublishOutcome outcome, object->publish());
  if (outcome == PublishOutcome::kPublished) {
    return sha256;
  }
  const auto there = read_empty_caption_file(output);
  if (there.is_ok() && (there->text_encoder_fingerprint == made_by || there->sha256 == sha256)) {
    return there->sha256;  // Another kind of processor may have made it.
  }
  const Location place = output / kEmptyCaptionFile;
  DARKROOM_ASSIGN_OR_RETURN(const bool is_in_use, has_parts(output));
  if (!is_in_use) {
    log_info("process: {} was of another job, of which no part is left, and is made anew", place.uri());
    DARKROOM_RETURN_IF_ERROR(output.store->replace_small(place.path, bytes));
    return sha256;
  }
  DARKROOM_RETURN_IF_ERROR(there.status());
  if (!there->text_encoder_fingerprint.empty()) {
    return Status::failed_precondition(
        "the empty caption's states in the output are of another text encoder than this job's; remove the file, and it is made anew:",
        place.uri());
  }
  log_warning(
      "process: {} holds other bytes than this job makes, as another kind of processor or another text encoder does; remove it, and the "
      "next run makes it anew",
      place.uri());
  return sha256;
}

}  // namespace darkroom
