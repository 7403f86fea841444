#include "empty_caption.h"

#include "darkroom/core/sha256.h"
#include "darkroom/tensor/safetensors.h"
#include "tried_encoder.h"

namespace darkroom {
namespace {

constexpr const char* kEmptyCaptionFile = "_empty_caption.safetensors";

/// An object on its way as a file that is written.
class ObjectFile : public OutputFile {
 public:
  explicit ObjectFile(PendingObject& object) : object_(object), path_(object.describe()) {}
  const std::string& path() const override { return path_; }
  Status write(std::span<const std::byte> bytes) override { return object_.write(bytes); }
  Status sync() override { return Status::ok(); }  // publish() does.
  Status close() override { return Status::ok(); }

 private:
  PendingObject& object_;
  const std::string path_;
};

}  // namespace

Result<std::string> publish_empty_caption(const RowEncoder& encoder, int encoder_threads, const Location& output) {
  torch::Tensor states_tw;
  DARKROOM_RETURN_IF_ERROR(run_apart(encoder_threads, "encoding the empty caption", [&] { states_tw = encoder.empty_caption_states(); }));
  DARKROOM_ASSIGN_OR_RETURN(const auto object, output.store->begin_object(output.path, kEmptyCaptionFile));
  ObjectFile file(*object);
  const TensorSpec spec{.name = "caption_embeddings", .dtype = states_tw.scalar_type(), .shape = states_tw.sizes().vec()};
  DARKROOM_ASSIGN_OR_RETURN(const auto writer, SafetensorsWriter::begin(file, {spec}, {}));
  DARKROOM_RETURN_IF_ERROR(writer->write(spec.name, states_tw));
  DARKROOM_RETURN_IF_ERROR(writer->finish());
  DARKROOM_RETURN_IF_ERROR(object->publish().status());
  return sha256_hex({static_cast<const char*>(states_tw.const_data_ptr()), states_tw.nbytes()});
}

}  // namespace darkroom
