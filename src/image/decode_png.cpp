#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstring>
#include <string>
#include <vector>

#include <png.h>

#include "darkroom/image/image.h"
#include "decoders.h"

namespace darkroom {
namespace {

/// One PNG read. libpng reports errors by longjmp; every call into it goes through guarded(), whose steps hold nothing
/// with a destructor.
class PngReader {
 public:
  explicit PngReader(std::span<const std::byte> bytes) : bytes_(bytes) {
    png_ = png_create_read_struct(
        PNG_LIBPNG_VER_STRING, this, [](png_structp png, png_const_charp text) { self(png_get_error_ptr(png)).fail(text); },
        [](png_structp, png_const_charp) {});
    info_ = png_ != nullptr ? png_create_info_struct(png_) : nullptr;
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  bool read_header() {
    if (info_ == nullptr) {
      return false;
    }
    return guarded([&] {
      // Colour profiles, text, transparency: nothing of it changes the pixels, so nothing of it is inflated or kept.
      png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
      png_set_chunk_malloc_max(png_, kMaxChunkMemory);
      png_set_chunk_cache_max(png_, kMaxKeptChunks);
      png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // The probe has judged the size.
      png_set_read_fn(png_, this, [](png_structp png, png_bytep out, size_t count) { self(png_get_io_ptr(png)).read(out, count); });
      png_read_info(png_, info_);
    });
  }
  int width() const { return static_cast<int>(png_get_image_width(png_, info_)); }
  int height() const { return static_cast<int>(png_get_image_height(png_, info_)); }
  bool is_interlaced() const { return png_get_interlace_type(png_, info_) != PNG_INTERLACE_NONE; }
  bool is_grey16() const { return png_get_bit_depth(png_, info_) == 16 && png_get_color_type(png_, info_) == PNG_COLOR_TYPE_GRAY; }

  /// Asks for RGB of 8 bits, or for the plain samples of 16-bit grey, in rows of `row_bytes`.
  bool start(size_t row_bytes) {
    return guarded([&] {
      if (!is_grey16()) {
        png_set_palette_to_rgb(png_);  // Also spreads grey of 1, 2 and 4 bits over 0..255.
        png_set_strip_16(png_);
        png_set_gray_to_rgb(png_);
        png_set_strip_alpha(png_);
      }
      num_passes_ = png_set_interlace_handling(png_);
      png_read_update_info(png_, info_);
      if (png_get_rowbytes(png_, info_) != row_bytes) {
        png_error(png_, "rows of an unexpected length");
      }
    });
  }
  /// The next row. REQUIRES: not interlaced.
  bool read_row(uint8_t* row) {
    return guarded([&] { png_read_row(png_, row, nullptr); });
  }
  /// As png_read_image, without its table of a pointer a row: eight bytes a row are most of a narrow picture's memory.
  bool read_rows(uint8_t* pixels, size_t row_bytes) {
    return guarded([&] {
      const auto num_rows = static_cast<size_t>(height());
      for (int pass = 0; pass < num_passes_; ++pass) {
        for (size_t y = 0; y < num_rows; ++y) {
          png_read_row(png_, pixels + y * row_bytes, nullptr);
        }
      }
    });
  }

  RowError error() const {
    if (is_starved_) {
      return {.code = RowErrorCode::kTruncated, .detail = "the PNG data end too early"};
    }
    return {.code = RowErrorCode::kDecodeFailed, .detail = std::string("PNG: ") + message_.data()};
  }

 private:
  static constexpr png_alloc_size_t kMaxChunkMemory = 8'000'000;
  static constexpr png_uint_32 kMaxKeptChunks = 16;

  static PngReader& self(void* reader) { return *static_cast<PngReader*>(reader); }

  template <typename Step>
  bool guarded(const Step& step) {
    if (setjmp(jump_) != 0) {
      return false;
    }
    step();
    return true;
  }
  [[noreturn]] void fail(const char* text) {
    std::strncpy(message_.data(), text, message_.size() - 1);
    longjmp(jump_, 1);
  }
  void read(uint8_t* out, size_t count) {
    if (count > bytes_.size()) {
      is_starved_ = true;
      fail("the data end too early");
    }
    std::memcpy(out, bytes_.data(), count);
    bytes_ = bytes_.subspan(count);
  }

  std::span<const std::byte> bytes_;  // What is not read yet.
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::jmp_buf jump_{};
  int num_passes_ = 1;  // More than one of an interlaced picture.
  std::array<char, 128> message_{};
  bool is_starved_ = false;
};

// Pillow keeps 16-bit grey as integers and clips them at 255: such pictures come out nearly white.
void clip_grey16(const std::vector<uint8_t>& big_endian, Image& image) {
  for (size_t i = 0; i < big_endian.size() / 2; ++i) {
    const uint8_t value = big_endian[2 * i] != 0 ? 255 : big_endian[2 * i + 1];
    std::fill_n(image.pixels.begin() + static_cast<std::ptrdiff_t>(3 * i), 3, value);
  }
}

// Interlaced pictures come in seven passes, and grey of 16 bits is clipped: both as a whole.
RowResult<Image> read_whole(PngReader& reader, const ImageHeader& header) {
  Image image = Image::filled(header.width, header.height, 3);
  std::vector<uint8_t> grey16(reader.is_grey16() ? image.pixels.size() / 3 * 2 : 0);
  uint8_t* samples = reader.is_grey16() ? grey16.data() : image.pixels.data();
  const size_t row_bytes = reader.is_grey16() ? image.row_bytes() / 3 * 2 : image.row_bytes();
  if (!reader.start(row_bytes) || !reader.read_rows(samples, row_bytes)) {
    return reader.error();
  }
  clip_grey16(grey16, image);
  return image;
}

std::optional<RowError> hand_out_whole(PngReader& reader, const ImageHeader& header, RowSink& sink) {
  const RowResult<Image> image = read_whole(reader, header);
  if (!image.is_ok()) {
    return image.error();
  }
  const PixelRows wanted = sink.wanted_rows();
  for (int y = wanted.first; y < wanted.end; ++y) {
    std::memcpy(sink.row_at(y), image->row(y), image->row_bytes());
  }
  return std::nullopt;
}

// Rows that nobody wants are read, too: they may be damaged, and each predicts the next one.
std::optional<RowError> hand_out_rows(PngReader& reader, const ImageHeader& header, RowSink& sink) {
  const PixelRows wanted = sink.wanted_rows();
  std::vector<uint8_t> unwanted_row(static_cast<size_t>(header.width) * 3);
  bool is_good = reader.start(unwanted_row.size());
  for (int y = 0; is_good && y < header.height; ++y) {
    is_good = reader.read_row(y >= wanted.first && y < wanted.end ? sink.row_at(y) : unwanted_row.data());
  }
  return is_good ? std::nullopt : std::optional(reader.error());
}

}  // namespace

std::optional<RowError> decode_png_rows(std::span<const std::byte> bytes, const ImageHeader& header, RowSink& sink) {
  PngReader reader(bytes);
  if (!reader.read_header()) {
    return reader.error();
  }
  if (reader.width() != header.width || reader.height() != header.height) {
    return RowError{.code = RowErrorCode::kDecodeFailed, .detail = "a PNG of two different sizes"};
  }
  return reader.is_interlaced() || reader.is_grey16() ? hand_out_whole(reader, header, sink) : hand_out_rows(reader, header, sink);
}

}  // namespace darkroom
