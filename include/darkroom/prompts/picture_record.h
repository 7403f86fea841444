#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/prompts/picture_jobs.h"

namespace darkroom {

/// What decides the bytes of a picture's file beside its fields.
struct PictureOrigin {
  std::string version = {};            ///< Of the program, which the file names.
  std::string model = {};              ///< As the command named it; the file repeats it.
  std::string weights = {};            ///< "ema" or "unet"; the file repeats it.
  std::string frozen = {};             ///< Model folder of a checkpoint's frozen parts; empty: the one that it names.
  std::string tokenizer_dialect = {};  ///< Empty: the model's.
  std::string prediction_type = {};    ///< Empty: the model's.
  std::string device = "cpu";          ///< "cpu" or "cuda".
  std::string precision = "float32";   ///< Of U-Net and text encoder.
  uint64_t threads = 1;                ///< Inside an operation.
  /// "unet", "vae", "text_encoder", "tokenizer", "scheduler" -> 64 hex digits over what it holds, wherever it lies.
  std::map<std::string, std::string> fingerprints = {};

  bool operator==(const PictureOrigin&) const = default;
};

struct RecordedPicture {
  std::string file = {};               ///< Within the folder: picture_file().
  PlannedPicture picture = {};         ///< Sampler and size are those that were used.
  std::string init_image_sha256 = {};  ///< Of the file that it starts from; empty: none.
  std::string sha256 = {};             ///< Of its own file; empty: not painted yet.

  bool operator==(const RecordedPicture&) const = default;
};

/// OUT/pictures.json (docs/formats/jobs.md): enough to paint each of the pictures again.
struct PictureRecord {
  PictureOrigin origin = {};
  std::vector<RecordedPicture> pictures = {};

  bool operator==(const PictureRecord&) const = default;
};

std::string picture_record_to_json(const PictureRecord& record);
/// `name` is how messages call it. Errors: kInvalidArgument (no record, another version, a field that is missing or takes no such value)
/// naming file, picture, key and value.
Result<PictureRecord> read_picture_record(std::string_view text, std::string_view name);

/// 64 hex digits over everything that decides a picture's file but the file's own place: equal ones have equal files on one kind of
/// processor.
std::string picture_identity(const PictureOrigin& origin, const RecordedPicture& picture);

/// Whether a model has the fingerprints that were recorded (PictureOrigin). Errors: kFailedPrecondition naming the part that is another
/// one.
Status check_same_model(const std::map<std::string, std::string>& recorded, const std::map<std::string, std::string>& opened);

}  // namespace darkroom
