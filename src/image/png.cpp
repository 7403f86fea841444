#include "darkroom/image/png.h"

#include <algorithm>
#include <csetjmp>
#include <cstdint>
#include <optional>
#include <string_view>

#include <png.h>

#include "byte_view.h"
#include "darkroom/core/check.h"
#include "darkroom/core/crc32.h"
#include "darkroom/core/utf8.h"

namespace darkroom {
namespace {

constexpr std::string_view kSignature = "\x89PNG\r\n\x1A\n";

bool is_keyword(const std::string& keyword) {
  const auto is_printable = [](char character) { return character >= 0x20 && character <= 0x7E; };
  return !keyword.empty() && keyword.size() <= 79 && std::ranges::all_of(keyword, is_printable) && keyword.front() != ' ' &&
         keyword.back() != ' ' && keyword.find("  ") == std::string::npos;
}

bool is_ascii(const std::string& text) {
  return std::ranges::all_of(text, [](char character) { return static_cast<uint8_t>(character) < 0x80; });
}

// libpng's view of the text: pointers into `text`.
std::vector<png_text> text_chunks(const std::vector<PngText>& text) {
  std::vector<png_text> chunks;
  for (const auto& [keyword, value] : text) {
    DARKROOM_CHECK(is_keyword(keyword), "not a PNG keyword:", keyword);
    DARKROOM_CHECK(value.find('\0') == std::string::npos, "a NUL in the PNG text of:", keyword);
    png_text chunk{};
    chunk.compression = is_ascii(value) ? PNG_TEXT_COMPRESSION_NONE : PNG_ITXT_COMPRESSION_NONE;
    chunk.key = const_cast<char*>(keyword.c_str());
    chunk.text = const_cast<char*>(value.c_str());
    (chunk.compression == PNG_TEXT_COMPRESSION_NONE ? chunk.text_length : chunk.itxt_length) = value.size();
    chunks.push_back(chunk);
  }
  return chunks;
}

/// One PNG written into a string. libpng reports errors by longjmp out of write(), which holds nothing with a destructor.
class PngWriter {
 public:
  PngWriter() {
    png_ = png_create_write_struct(
        PNG_LIBPNG_VER_STRING, this,
        [](png_structp png, png_const_charp) { std::longjmp(static_cast<PngWriter*>(png_get_error_ptr(png))->jump_, 1); },
        [](png_structp, png_const_charp) {});
    info_ = png_ != nullptr ? png_create_info_struct(png_) : nullptr;
    DARKROOM_CHECK(info_ != nullptr, "libpng has no memory for a writer");
  }
  ~PngWriter() { png_destroy_write_struct(&png_, &info_); }
  PngWriter(const PngWriter&) = delete;
  PngWriter& operator=(const PngWriter&) = delete;

  bool write(const Image& image, int colour_type, const std::vector<png_text>& text) {
    if (setjmp(jump_) != 0) {
      return false;
    }
    png_set_write_fn(
        png_, &bytes_,
        [](png_structp png, png_bytep data, size_t count) {
          static_cast<std::string*>(png_get_io_ptr(png))->append(reinterpret_cast<const char*>(data), count);
        },
        [](png_structp) {});
    png_set_compression_level(png_, 6);
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_IHDR(png_, info_, static_cast<png_uint_32>(image.width), static_cast<png_uint_32>(image.height), 8, colour_type,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_set_text(png_, info_, text.data(), static_cast<int>(text.size()));
    png_write_info(png_, info_);
    for (int y = 0; y < image.height; ++y) {
      png_write_row(png_, image.row(y));
    }
    png_write_end(png_, nullptr);
    return true;
  }
  std::string take_bytes() { return std::move(bytes_); }

 private:
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::jmp_buf jump_{};
  std::string bytes_;
};

int colour_type_of(const Image& image) {
  switch (image.num_channels) {
    case 1:
      return PNG_COLOR_TYPE_GRAY;
    case 3:
      return PNG_COLOR_TYPE_RGB;
    case 4:
      return PNG_COLOR_TYPE_RGB_ALPHA;
    default:
      DARKROOM_CHECK(false, "a PNG cannot have so many channels:", image.num_channels);
  }
}

std::string utf8_of_latin1(std::string_view latin1) {
  std::string utf8;
  for (const char character : latin1) {
    append_utf8(utf8, static_cast<uint8_t>(character));  // Latin-1 is Unicode's first 256 characters.
  }
  return utf8;
}

std::optional<PngText> parse_plain_text(std::string_view body) {
  const size_t end = body.find('\0');
  if (end == std::string_view::npos) {
    return std::nullopt;
  }
  return PngText{utf8_of_latin1(body.substr(0, end)), utf8_of_latin1(body.substr(end + 1))};
}

// Keyword, NUL, compression flag and method, language, NUL, translated keyword, NUL, text.
std::optional<PngText> parse_international_text(std::string_view body) {
  const size_t end = body.find('\0');
  if (end == std::string_view::npos || body.size() < end + 3 || body[end + 1] != '\0') {
    return std::nullopt;
  }
  const size_t language_end = body.find('\0', end + 3);
  const size_t translation_end = language_end == std::string_view::npos ? language_end : body.find('\0', language_end + 1);
  if (translation_end == std::string_view::npos) {
    return std::nullopt;
  }
  return PngText{utf8_of_latin1(body.substr(0, end)), std::string(body.substr(translation_end + 1))};
}

}  // namespace

std::string encode_png(const Image& image, const std::vector<PngText>& text) {
  DARKROOM_CHECK(image.width > 0 && image.height > 0, "an empty picture cannot be a PNG:", image.width, image.height);
  DARKROOM_CHECK(image.pixels.size() == image.row_bytes() * static_cast<size_t>(image.height),
                 "pixels do not fit the size:", image.pixels.size());
  PngWriter writer;
  DARKROOM_CHECK(writer.write(image, colour_type_of(image), text_chunks(text)), "libpng refused a valid picture");
  return writer.take_bytes();
}

Result<std::vector<PngText>> read_png_text(std::span<const std::byte> bytes) {
  const ByteView png(bytes);
  if (!png.starts_with(0, kSignature)) {
    return Status::corrupt_data("reading PNG text: the bytes are no PNG, their number:", png.size());
  }
  std::vector<PngText> result;
  for (size_t chunk = kSignature.size(); !png.starts_with(chunk + 4, "IEND");) {
    if (!png.covers(chunk, 12) || !png.covers(chunk + 12, png.be32(chunk))) {
      return Status::corrupt_data("reading PNG text: a chunk is cut at byte", chunk);
    }
    const size_t size = png.be32(chunk);
    if (crc32(png.text(chunk + 4, size + 4)) != png.be32(chunk + 8 + size)) {
      return Status::corrupt_data("reading PNG text: wrong checksum of the chunk at byte", chunk);
    }
    const std::string_view name = png.text(chunk + 4, 4);
    const std::string_view body = png.text(chunk + 8, size);
    std::optional<PngText> text;
    if (name == "tEXt") {
      text = parse_plain_text(body);
    } else if (name == "iTXt") {
      text = parse_international_text(body);
    }
    if (text) {
      result.push_back(*std::move(text));
    }
    chunk += size + 12;
  }
  return result;
}

}  // namespace darkroom
