#include "darkroom/image/jpeg.h"

#include <cstdio>  // jpeglib.h does not include it.

#include <jpeglib.h>

#include <csetjmp>
#include <new>
#include <string>
#include <utility>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

/// The library's error handler, which must not return.
struct JpegFault {
  jpeg_error_mgr manager;  // First: the library hands this out.
  std::jmp_buf jump;
};

/// Where the library writes to: its own buffer in memory is lost when an error jumps over it.
struct JpegBytes {
  static constexpr size_t kFirst = 4096;

  jpeg_destination_mgr manager;  // First: the library hands this out.
  std::string bytes;

  JpegBytes() {
    manager.init_destination = [](j_compress_ptr coder) { of(coder).grow(coder, 0, kFirst); };
    manager.empty_output_buffer = [](j_compress_ptr coder) -> boolean {
      const size_t size = of(coder).bytes.size();
      of(coder).grow(coder, size, 2 * size);
      return TRUE;
    };
    manager.term_destination = [](j_compress_ptr coder) { of(coder).bytes.resize(of(coder).bytes.size() - coder->dest->free_in_buffer); };
  }

  static JpegBytes& of(j_compress_ptr coder) { return *reinterpret_cast<JpegBytes*>(coder->dest); }

  void grow(j_compress_ptr coder, size_t used, size_t size) {
    bool has_grown = true;
    try {
      bytes.resize(size);
    } catch (const std::bad_alloc&) {
      has_grown = false;  // No exception passes through the library, and no jump leaves a handler.
    }
    if (!has_grown) {
      coder->err->error_exit(reinterpret_cast<j_common_ptr>(coder));
    }
    manager.next_output_byte = reinterpret_cast<JOCTET*>(bytes.data()) + used;
    manager.free_in_buffer = size - used;
  }
};

/// Owns the library's state; nothing with a destructor lives where an error jumps over it.
class JpegWriter {
 public:
  JpegWriter() {
    coder_.err = jpeg_std_error(&fault_.manager);
    fault_.manager.error_exit = [](j_common_ptr coder) { std::longjmp(reinterpret_cast<JpegFault*>(coder->err)->jump, 1); };
  }
  ~JpegWriter() { jpeg_destroy_compress(&coder_); }
  JpegWriter(const JpegWriter&) = delete;
  JpegWriter& operator=(const JpegWriter&) = delete;

  bool write(const Image& image, int quality) {
    if (setjmp(fault_.jump) != 0) {
      return false;
    }
    jpeg_create_compress(&coder_);
    coder_.dest = &bytes_.manager;
    coder_.image_width = static_cast<JDIMENSION>(image.width);
    coder_.image_height = static_cast<JDIMENSION>(image.height);
    coder_.input_components = image.num_channels;
    coder_.in_color_space = image.num_channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&coder_);
    jpeg_set_quality(&coder_, quality, TRUE);
    coder_.comp_info[0].h_samp_factor = 1;
    coder_.comp_info[0].v_samp_factor = 1;
    jpeg_start_compress(&coder_, TRUE);
    while (coder_.next_scanline < coder_.image_height) {
      auto* row = const_cast<JSAMPROW>(image.row(static_cast<int>(coder_.next_scanline)));
      jpeg_write_scanlines(&coder_, &row, 1);
    }
    jpeg_finish_compress(&coder_);
    return true;
  }
  std::string take() { return std::move(bytes_.bytes); }

 private:
  jpeg_compress_struct coder_{};
  JpegFault fault_{};
  JpegBytes bytes_;
};

}  // namespace

std::string encode_jpeg(const Image& image, int quality) {
  DARKROOM_CHECK(image.num_channels == 1 || image.num_channels == 3, "a JPEG cannot have so many channels:", image.num_channels);
  JpegWriter writer;
  DARKROOM_CHECK(writer.write(image, quality), "a JPEG cannot be written of (width, height, quality):", image.width, image.height, quality);
  return writer.take();
}

}  // namespace darkroom
