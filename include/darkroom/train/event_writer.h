#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"

namespace darkroom {

class LostRecords;  // src/train/spool_records.h

/// The name of the event file of a start at `first_step`.
std::string event_file_name(int64_t first_step);

/// Writes a TensorBoard event file: tf.Event messages in TFRecord frames (docs/formats/run_folder.md).
/// A run folder holds one file a start, `events.out.tfevents.STEP.darkroom`, STEP being the steps done at that start: the
/// first message tells TensorBoard to forget what earlier files say about later steps.
/// Thread safety: one object, one thread.
class EventWriter {
 public:
  /// Removes event files of `folder` that began at or after `first_step` (their steps are about to be repeated) and opens
  /// a new one. `lost`: as for MetricsLog. Errors: those of the file system.
  static Result<std::unique_ptr<EventWriter>> open(FileSystem& files, const std::string& folder, int64_t first_step,
                                                   LostRecords* lost = nullptr);

  Status add_scalar(int64_t step, std::string_view tag, float value);
  /// A PNG picture.
  Status add_image(int64_t step, std::string_view tag, int width, int height, std::string_view png);
  /// What was added survives a power loss once this returns ok.
  Status sync() { return file_->sync(); }

 private:
  explicit EventWriter(std::unique_ptr<OutputFile> file) : file_(std::move(file)) {}
  Status write_event(int64_t step, std::string_view fields);

  std::unique_ptr<OutputFile> file_;
};

/// `data` as one TFRecord: length, masked CRC-32C of the length, data, masked CRC-32C of the data; little-endian.
std::string tfrecord_frame(std::string_view data);

}  // namespace darkroom
