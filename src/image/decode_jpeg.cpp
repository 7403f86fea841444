#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <jpeglib.h>

#include <jerror.h>  // After jpeglib.h, which it needs.

#include "darkroom/core/check.h"
#include "decoders.h"
#include "multiply_by_fraction.h"

namespace darkroom {
namespace {

// A progressive picture has about ten scans; the standard allows thousands, each of which costs a pass over the picture.
constexpr int kMaxScans = 256;
constexpr int64_t kMaxScannedPixels = 4'000'000'000;

/// One decompression. libjpeg reports errors by longjmp; every call into it goes through guarded(), whose steps hold
/// nothing with a destructor.
class JpegReader {
 public:
  enum class Outcome { kDone, kStarved, kFailed, kTooManyScans, kMissingBlocks };

  JpegReader(std::span<const std::byte> bytes, Damage damage) {
    jpeg_.err = jpeg_std_error(&errors_);
    jpeg_.client_data = this;
    errors_.error_exit = [](j_common_ptr jpeg) { self(jpeg).leave(Outcome::kFailed); };
    errors_.output_message = [](j_common_ptr) {};
    if (damage == Damage::kRefused) {
      errors_.emit_message = [](j_common_ptr jpeg, int level) { self(jpeg).judge_message(level); };
    }
    progress_.progress_monitor = [](j_common_ptr jpeg) { self(jpeg).check_scans(); };
    is_created_ = guarded([&] {
                    jpeg_create_decompress(&jpeg_);
                    return Outcome::kDone;
                  }) == Outcome::kDone;
    jpeg_.progress = &progress_;
    set_source(bytes);
  }
  ~JpegReader() {
    if (is_created_) {
      jpeg_destroy_decompress(&jpeg_);
    }
  }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  Outcome read_header() {
    if (!is_created_) {
      return Outcome::kFailed;
    }
    return guarded([&] { return jpeg_read_header(&jpeg_, TRUE) == JPEG_SUSPENDED ? Outcome::kStarved : Outcome::kDone; });
  }
  int width() const { return static_cast<int>(jpeg_.image_width); }
  int height() const { return static_cast<int>(jpeg_.image_height); }
  int num_components() const { return jpeg_.num_components; }

  /// Decodes the wanted rows as RGB or CMYK, each to `row_at(y)`, which may not throw; `use_row(y)` follows when it is there. Of the
  /// others only the bits are parsed, to notice where the data end too early; `unwanted_row` takes one of them.
  template <typename RowAt, typename UseRow>
  Outcome read_rows(J_COLOR_SPACE colours, PixelRows wanted, JSAMPROW unwanted_row, const RowAt& row_at, const UseRow& use_row) {
    return guarded([&] {
      jpeg_.out_color_space = colours;
      jpeg_.dct_method = JDCT_ISLOW;
      jpeg_.do_fancy_upsampling = TRUE;
      if (jpeg_start_decompress(&jpeg_) == FALSE || !skip_to(wanted.first)) {
        return Outcome::kStarved;
      }
      for (int y = wanted.first; y < wanted.end; ++y) {
        if (!read_row(row_at(y))) {
          return Outcome::kStarved;
        }
        use_row(y);
      }
      // libjpeg takes a skip of the last row for the wish to look at no more bytes.
      if (wanted.end < height() && !(skip_to(height() - 1) && read_row(unwanted_row))) {
        return Outcome::kStarved;
      }
      return jpeg_finish_decompress(&jpeg_) == FALSE ? Outcome::kStarved : Outcome::kDone;
    });
  }

  std::string message() {
    char text[JMSG_LENGTH_MAX] = {};
    errors_.format_message(reinterpret_cast<j_common_ptr>(&jpeg_), text);
    return text;
  }

 private:
  static JpegReader& self(j_common_ptr jpeg) { return *static_cast<JpegReader*>(jpeg->client_data); }

  template <typename Step>
  Outcome guarded(const Step& step) {
    if (setjmp(jump_) != 0) {
      return left_with_;
    }
    return step();
  }
  [[noreturn]] void leave(Outcome outcome) {
    left_with_ = outcome;
    longjmp(jump_, 1);
  }

  bool read_row(JSAMPROW row) { return jpeg_read_scanlines(&jpeg_, &row, 1) == 1; }

  // False where the data end before row y. REQUIRES: y < height().
  bool skip_to(int y) {
    const auto target = static_cast<JDIMENSION>(y);
    if (jpeg_.output_scanline < target) {
      jpeg_skip_scanlines(&jpeg_, target - jpeg_.output_scanline);
    }
    return jpeg_.output_scanline == target;
  }

  void check_scans() {
    const int64_t pixels = static_cast<int64_t>(jpeg_.image_width) * jpeg_.image_height;
    if (jpeg_.input_scan_number > kMaxScans || jpeg_.input_scan_number * pixels > kMaxScannedPixels) {
      leave(Outcome::kTooManyScans);
    }
  }

  // libjpeg warns of damage, at level -1, and goes on with what it makes of it.
  void judge_message(int level) {
    if (level >= 0) {
      return;
    }
    switch (errors_.msg_code) {
      case JWRN_HIT_MARKER:
        leave(Outcome::kMissingBlocks);
      case JWRN_HUFF_BAD_CODE:
      case JWRN_ARITH_BAD_CODE:
      case JWRN_MUST_RESYNC:
        leave(Outcome::kFailed);
      default:
        break;  // Of bytes between segments and of odd headers, which harm no pixel.
    }
  }

  // All bytes are there from the beginning; when they are used up the decoder suspends, which tells a cut file apart.
  void set_source(std::span<const std::byte> bytes) {
    source_.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data());
    source_.bytes_in_buffer = bytes.size();
    source_.init_source = [](j_decompress_ptr) {};
    source_.term_source = [](j_decompress_ptr) {};
    source_.resync_to_restart = jpeg_resync_to_restart;
    source_.fill_input_buffer = [](j_decompress_ptr) -> boolean { return FALSE; };
    source_.skip_input_data = [](j_decompress_ptr jpeg, long count) {
      if (count > 0) {
        const size_t skipped = std::min(static_cast<size_t>(count), jpeg->src->bytes_in_buffer);
        jpeg->src->next_input_byte += skipped;
        jpeg->src->bytes_in_buffer -= skipped;
      }
    };
    jpeg_.src = &source_;
  }

  jpeg_decompress_struct jpeg_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  jpeg_source_mgr source_{};
  std::jmp_buf jump_{};
  Outcome left_with_ = Outcome::kFailed;
  bool is_created_ = false;
};

// Adobe stores CMYK inverted, and so does everybody else: the samples are the shares of light that each ink lets through.
void adobe_cmyk_to_rgb(const uint8_t* cmyk, int width, uint8_t* rgb) {
  for (int x = 0; x < width; ++x, cmyk += 4, rgb += 3) {
    const int light = cmyk[3];
    for (int c = 0; c < 3; ++c) {
      rgb[c] = static_cast<uint8_t>(light - multiply_by_fraction(255 - cmyk[c], light));
    }
  }
}

RowError jpeg_error(JpegReader& reader, JpegReader::Outcome outcome) {
  switch (outcome) {
    case JpegReader::Outcome::kStarved:
      return {.code = RowErrorCode::kTruncated, .detail = "the JPEG data end too early"};
    case JpegReader::Outcome::kMissingBlocks:
      return {.code = RowErrorCode::kTruncated, .detail = "the blocks of a JPEG end before its picture does"};
    case JpegReader::Outcome::kTooManyScans:
      return {.code = RowErrorCode::kBomb, .detail = "a JPEG of too many scans"};
    case JpegReader::Outcome::kDone:
    case JpegReader::Outcome::kFailed:
      break;
  }
  return {.code = RowErrorCode::kDecodeFailed, .detail = "JPEG: " + reader.message()};
}

}  // namespace

std::optional<RowError> decode_jpeg_rows(std::span<const std::byte> bytes, const ImageHeader& header, RowSink& sink, Damage damage) {
  JpegReader reader(bytes, damage);
  if (const auto outcome = reader.read_header(); outcome != JpegReader::Outcome::kDone) {
    return jpeg_error(reader, outcome);
  }
  if (reader.width() != header.width || reader.height() != header.height) {
    return RowError{.code = RowErrorCode::kDecodeFailed, .detail = "a JPEG of two different frame sizes"};
  }
  std::vector<uint8_t> row(static_cast<size_t>(header.width) * 4);  // For CMYK and for what is not wanted.
  JpegReader::Outcome outcome;
  if (reader.num_components() == 4) {
    outcome = reader.read_rows(
        JCS_CMYK, sink.wanted_rows(), row.data(), [&](int) { return row.data(); },
        [&](int y) { adobe_cmyk_to_rgb(row.data(), header.width, sink.row_at(y)); });
  } else {
    outcome = reader.read_rows(
        JCS_RGB, sink.wanted_rows(), row.data(), [&](int y) { return sink.row_at(y); }, [](int) {});
  }
  if (outcome != JpegReader::Outcome::kDone) {
    return jpeg_error(reader, outcome);
  }
  return std::nullopt;
}

}  // namespace darkroom
