#include "darkroom/image/jpeg.h"

#include <cstdio>  // jpeglib.h does not include it.

#include <jpeglib.h>

#include <csetjmp>
#include <cstdlib>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

/// The library's error handler, which must not return.
struct JpegFault {
  jpeg_error_mgr manager;  // First: the library hands this out.
  std::jmp_buf jump;
};

/// Owns the library's state; nothing with a destructor lives where an error jumps over it.
class JpegWriter {
 public:
  JpegWriter() {
    coder_.err = jpeg_std_error(&fault_.manager);
    fault_.manager.error_exit = [](j_common_ptr coder) { std::longjmp(reinterpret_cast<JpegFault*>(coder->err)->jump, 1); };
  }
  ~JpegWriter() {
    jpeg_destroy_compress(&coder_);
    std::free(bytes_);
  }
  JpegWriter(const JpegWriter&) = delete;
  JpegWriter& operator=(const JpegWriter&) = delete;

  bool write(const Image& image, int quality) {
    if (setjmp(fault_.jump) != 0) {
      bytes_ = nullptr;  // The library may have moved them, and does not say where to.
      return false;
    }
    jpeg_create_compress(&coder_);
    jpeg_mem_dest(&coder_, &bytes_, &num_bytes_);
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
  std::string bytes() const { return {reinterpret_cast<const char*>(bytes_), num_bytes_}; }

 private:
  jpeg_compress_struct coder_{};
  JpegFault fault_{};
  unsigned char* bytes_ = nullptr;
  unsigned long num_bytes_ = 0;
};

}  // namespace

std::string encode_jpeg(const Image& image, int quality) {
  DARKROOM_CHECK(image.num_channels == 1 || image.num_channels == 3, "a JPEG cannot have so many channels:", image.num_channels);
  JpegWriter writer;
  DARKROOM_CHECK(writer.write(image, quality), "a JPEG cannot be written of (width, height, quality):", image.width, image.height, quality);
  return writer.bytes();
}

}  // namespace darkroom
