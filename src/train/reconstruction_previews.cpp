#include <fmt/format.h>

#include "darkroom/files/paths.h"
#include "darkroom/image/contact_sheet.h"
#include "darkroom/image/png.h"
#include "darkroom/image/transform.h"
#include "previews.h"

namespace darkroom {
namespace {

Image picture_of(const torch::Tensor& image_chw) {
  const auto values = image_chw.cpu().contiguous();
  return denormalise_chw({values.data_ptr<float>(), static_cast<size_t>(values.numel())}, static_cast<int>(values.size(2)),
                         static_cast<int>(values.size(1)), static_cast<int>(values.size(0)));
}

class ReconstructionPreviews : public Previews {
 public:
  ReconstructionPreviews(const VaePart& part, torch::Tensor images_nchw, std::vector<std::string> keys)
      : part_(part), images_nchw_(std::move(images_nchw)), keys_(std::move(keys)) {}

  Status make(FileSystem& files, const std::string& folder, int64_t step, EventWriter& events) override {
    const torch::NoGradGuard no_gradients;
    const auto made = part_.reconstruct(images_nchw_.to(part_.device()));
    std::vector<std::vector<ContactSheetCell>> rows(2);
    for (int64_t i = 0; i < images_nchw_.size(0); ++i) {
      rows[0].push_back({picture_of(images_nchw_[i]), keys_[static_cast<size_t>(i)]});
      rows[1].push_back({picture_of(made[i]), ""});
    }
    const auto side = static_cast<int>(std::max<int64_t>(128, images_nchw_.size(3)));
    const Image sheet = render_contact_sheet(rows, {.cell_width = side, .cell_height = side, .row_titles = {"picture", "decoded"}});
    const std::string png = encode_png(sheet, {{"step", fmt::format("{}", step)}});
    DARKROOM_RETURN_IF_ERROR(events.add_image(step, "samples/reconstructions", sheet.width, sheet.height, png));
    return write_file_atomic(files, join_path(folder, "sheet.png"), png);
  }

 private:
  const VaePart& part_;
  torch::Tensor images_nchw_;
  std::vector<std::string> keys_;
};

}  // namespace

std::unique_ptr<Previews> make_reconstruction_previews(const VaePart& part, torch::Tensor images_nchw, std::vector<std::string> keys) {
  return std::make_unique<ReconstructionPreviews>(part, std::move(images_nchw), std::move(keys));
}

}  // namespace darkroom
