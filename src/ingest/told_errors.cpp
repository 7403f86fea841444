#include "darkroom/ingest/told_errors.h"

#include <utility>

#include "darkroom/core/log.h"
#include "darkroom/core/printable.h"
#include "darkroom/core/shown_uri.h"
#include "darkroom/core/utf8.h"

namespace darkroom {
namespace {

constexpr size_t kMostCodes = 64;
constexpr size_t kMostCharacters = 200;

/// At most kMostCharacters, "..." included, as a line of a log may show them.
std::string shortened(const std::string& text) {
  const std::u32string characters = decode_utf8(printable(without_uri_secrets(text)));
  std::string result;
  for (const char32_t c : characters.substr(0, characters.size() > kMostCharacters ? kMostCharacters - 3 : kMostCharacters)) {
    append_utf8(result, c);
  }
  return characters.size() > kMostCharacters ? result + "..." : result;
}

class TellingDecoder : public PictureDecoder {
 public:
  TellingDecoder(ToldErrors& told, std::unique_ptr<PictureDecoder> decoder) : told_(told), decoder_(std::move(decoder)) {}

  Result<RowResult<ImageHeader>> check(std::span<const std::byte> bytes, const ImageLimits& limits) override {
    return tell(decoder_->check(bytes, limits));
  }
  Result<RowResult<DecodedSize>> transform(std::span<const std::byte> bytes, const TransformOptions& options, const ImageLimits& limits,
                                           const CropDraw& draw, std::span<uint8_t> out_hwc) override {
    return tell(decoder_->transform(bytes, options, limits, draw, out_hwc));
  }
  Result<RowResult<DecodedSize>> resize_to(std::span<const std::byte> bytes, const DecodedSize& size, const ImageLimits& limits,
                                           std::span<uint8_t> out_hwc) override {
    return tell(decoder_->resize_to(bytes, size, limits, out_hwc));
  }

 private:
  template <typename Value>
  Result<RowResult<Value>> tell(Result<RowResult<Value>> result) {
    if (result.is_ok() && !result->is_ok()) {
      told_.tell(result->error());
    }
    return result;
  }

  ToldErrors& told_;
  const std::unique_ptr<PictureDecoder> decoder_;
};

}  // namespace

void ToldErrors::tell(const RowError& error, std::string_view place) {
  if (error.detail.empty()) {
    return;
  }
  std::string reason;
  {
    const std::lock_guard hold(mutex_);
    if (told_.size() >= kMostCodes || told_.contains(error.name())) {
      return;
    }
    reason = shortened(error.detail) + (place.empty() ? "" : "; the first is of " + shortened(shown_uri(place)));
    told_.emplace(error.name(), reason);
  }
  log_info("{}: a row failed, {}: {}", job_, error.name(), reason);
}

std::map<std::string, std::string> ToldErrors::told() const {
  const std::lock_guard hold(mutex_);
  return told_;
}

std::unique_ptr<PictureDecoder> decoder_that_tells(ToldErrors& told, std::unique_ptr<PictureDecoder> decoder) {
  return std::make_unique<TellingDecoder>(told, std::move(decoder));
}

}  // namespace darkroom
