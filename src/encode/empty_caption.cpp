#include "empty_caption.h"

#include <exception>
#include <future>
#include <system_error>
#include <thread>
#include <utility>

#include "darkroom/core/sha256.h"
#include "darkroom/tensor/safetensors.h"

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

/// In a thread of its own: the number of threads that set_num_threads gives belongs to the thread that calls it.
Result<torch::Tensor> encode_apart(const RowEncoder& encoder, int num_threads) {
  std::packaged_task<torch::Tensor()> task([&] {
    at::set_num_threads(num_threads);
    return encoder.empty_caption_states();
  });
  std::future<torch::Tensor> states_tw = task.get_future();
  try {
    std::jthread(std::move(task)).join();
    return states_tw.get();
  } catch (const std::system_error& failure) {
    return Status::resource_exhausted("no thread can be started to encode the empty caption; let there be more processes (ulimit -u):",
                                      failure.what());
  } catch (const std::exception& failure) {
    return Status::internal("encoding the empty caption failed:", failure.what());
  }
}

}  // namespace

Result<std::string> publish_empty_caption(const RowEncoder& encoder, int encoder_threads, const Location& output) {
  DARKROOM_ASSIGN_OR_RETURN(const torch::Tensor states_tw, encode_apart(encoder, encoder_threads));
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
