#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include <hwy/highway.h>
#include <jpeglib.h>

#include "darkroom/core/check.h"
#include "darkroom/image/transform.h"
#include "stopwatch_server.h"

// Times the image module on pictures held in memory, for benchmarks/bench_images.py:
//   image_bench RESOLUTION RESULTS_FOLDER JPEG...
// Tasks: transform, decode (ours), libjpeg (nothing but libjpeg-turbo), resize:FILTER (the shorter side to RESOLUTION, the
// whole picture). One run of a task takes all pictures once. At the start the results go to RESULTS_FOLDER, to be checked.
// DARKROOM_VECTOR_UNIT=AVX2 holds ours to that unit of Highway's, as it holds image_test; a unit that the processor lacks is refused.
namespace darkroom {
namespace {

std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_bytes(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  DARKROOM_CHECK(file.good(), "a result could not be written:", path);
}

// The least that a decoder can do: the flags of Pillow (accurate IDCT, fancy upsampling, RGB) into memory that is there.
void decode_with_libjpeg_alone(const std::string& bytes, std::vector<uint8_t>& pixels) {
  jpeg_decompress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);  // Its error_exit ends the program, which is right for a benchmark.
  jpeg_create_decompress(&jpeg);
  jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(&jpeg, TRUE);
  jpeg.out_color_space = JCS_RGB;
  jpeg.dct_method = JDCT_ISLOW;
  jpeg.do_fancy_upsampling = TRUE;
  jpeg_start_decompress(&jpeg);
  const size_t row_bytes = size_t{jpeg.output_width} * 3;
  pixels.resize(row_bytes * jpeg.output_height);
  while (jpeg.output_scanline < jpeg.output_height) {
    JSAMPROW row = pixels.data() + jpeg.output_scanline * row_bytes;
    jpeg_read_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_decompress(&jpeg);
  jpeg_destroy_decompress(&jpeg);
}

class ImageTasks {
 public:
  ImageTasks(int resolution, const std::vector<std::string>& paths) {
    options_.resolution = resolution;
    for (const std::string& path : paths) {
      files_.push_back(read_bytes(path));
      images_.push_back(decode_image(std::as_bytes(std::span(files_.back())), limits_).value());
    }
  }

  std::function<void()> find(const std::string& name) {
    if (name == "transform") {
      return [this] { each_file([this](auto bytes) { keep(transform_image(bytes, options_, limits_).value().chw[0]); }); };
    }
    if (name == "decode") {
      return [this] { each_file([this](auto bytes) { keep(decode_image(bytes, limits_).value().pixels[0]); }); };
    }
    if (name == "libjpeg") {
      return [this] {
        for (const std::string& file : files_) {
          decode_with_libjpeg_alone(file, pixels_);
          keep(pixels_[0]);
        }
      };
    }
    if (name.starts_with("resize:")) {
      return [this, filter = parse_filter(name.substr(7)).value()] {
        for (const Image& image : images_) {
          keep(resized(image, filter).pixels[0]);
        }
      };
    }
    return {};
  }

  void write_results(const std::string& folder) const {
    for (size_t i = 0; i < files_.size(); ++i) {
      const std::string path = folder + "/" + std::to_string(i);
      const TransformedImage transformed = transform_image(std::as_bytes(std::span(files_[i])), options_, limits_).value();
      write_bytes(path + ".transform", std::as_bytes(std::span(transformed.chw)));
      for (const std::string filter : {"bilinear", "bicubic", "lanczos"}) {
        const Image image = resized(images_[i], parse_filter(filter).value());
        write_bytes(path + "." + filter, std::as_bytes(std::span(image.pixels)));
      }
    }
  }

 private:
  template <typename Use>
  void each_file(const Use& use) {
    for (const std::string& file : files_) {
      use(std::as_bytes(std::span(file)));
    }
  }
  template <typename Value>
  void keep(Value value) {
    kept_ = kept_ + static_cast<double>(value);
  }
  Image resized(const Image& image, Filter filter) const {
    const int64_t side = options_.resolution;
    const auto width = static_cast<int>(image.width <= image.height ? side : side * image.width / image.height);
    const auto height = static_cast<int>(image.width <= image.height ? side * image.height / image.width : side);
    return resize(image, width, height, filter);
  }

  TransformOptions options_;
  ImageLimits limits_{.min_size = 1};
  std::vector<std::string> files_;
  std::vector<Image> images_;
  std::vector<uint8_t> pixels_;
  volatile double kept_ = 0;  // What the compiler may not leave out.
};

// False when the unit that DARKROOM_VECTOR_UNIT names, if it does, cannot be had.
bool hold_to_asked_vector_unit() {
  const char* asked = std::getenv("DARKROOM_VECTOR_UNIT");
  // Highway's units of plain C are not compiled (src/CMakeLists.txt): held to one of them, SSSE3 would be timed under its name.
  const int64_t units = hwy::SupportedTargets() & ~(HWY_EMU128 | HWY_SCALAR);
  for (int64_t rest = asked == nullptr ? 0 : units; rest != 0; rest &= rest - 1) {
    if (hwy::TargetName(rest & -rest) == std::string(asked)) {
      hwy::SetSupportedTargetsForTest(rest & -rest);
      return true;
    }
  }
  return asked == nullptr;
}

int run(int argc, char** argv) {
  if (argc < 4) {
    std::cerr << "usage: image_bench RESOLUTION RESULTS_FOLDER JPEG...\n";
    return 2;
  }
  if (!hold_to_asked_vector_unit()) {
    std::cerr << "image_bench: this processor has no vector unit " << std::getenv("DARKROOM_VECTOR_UNIT") << '\n';
    return 2;
  }
  ImageTasks tasks(std::stoi(argv[1]), {argv + 3, argv + argc});
  tasks.write_results(argv[2]);
  return serve_timings([&](const std::string& name) { return tasks.find(name); });
}

}  // namespace
}  // namespace darkroom

int main(int argc, char** argv) { return darkroom::run(argc, argv); }
