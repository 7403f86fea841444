#include "process_picture.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "darkroom/encode/stored_latents.h"
#include "darkroom/image/contact_sheet.h"
#include "darkroom/image/png.h"
#include "darkroom/image/sandbox.h"
#include "darkroom/ingest/row_dialects.h"
#include "darkroom/process/image_rows.h"
#include "darkroom/tables/bytes_column.h"
#include "darkroom/tables/table_reader.h"
#include "darkroom/tables/tensor_column.h"

namespace darkroom {
namespace {

/// One stored row.
struct Sample {
  std::string key;
  std::string caption;
  torch::Tensor latents_chw;  ///< As stored: sample or moments.
  torch::Tensor states_tw;    ///< Undefined without states.
};

Result<torch::Tensor> read_tensor(const arrow::RecordBatch& batch, const std::string& name, const std::vector<int64_t>& shape,
                                  int64_t row) {
  const auto field = batch.schema()->GetFieldByName(name);
  if (field == nullptr) {
    return Status::not_found("a part has no such column:", name);
  }
  DARKROOM_ASSIGN_OR_RETURN(const TensorColumn column, TensorColumn::open(*field, batch.GetColumnByName(name), shape));
  torch::Tensor tensor = torch::empty(shape, torch::kFloat32);
  column.read_floats(row, {tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())});
  return tensor;
}

Status read_samples(const Location& part, const LatentsLayout& layout, size_t num_samples, std::vector<Sample>& samples) {
  DARKROOM_ASSIGN_OR_RETURN(auto table, open_table(part));
  const std::string& path = table->path();
  DARKROOM_ASSIGN_OR_RETURN(auto range, table->read_rows(0, static_cast<int64_t>(num_samples), {}));
  while (samples.size() < num_samples) {
    DARKROOM_ASSIGN_OR_RETURN(const auto batch, range->next());
    if (batch == nullptr) {
      return {};
    }
    DARKROOM_ASSIGN_OR_RETURN(const BytesColumn keys, BytesColumn::open(path, "key", batch->GetColumnByName("key")));
    DARKROOM_ASSIGN_OR_RETURN(const BytesColumn captions, BytesColumn::open(path, "caption", batch->GetColumnByName("caption")));
    for (int64_t row = 0; row < batch->num_rows() && samples.size() < num_samples; ++row) {
      Sample sample{.key = std::string(keys.at(row).value_or("")),
                    .caption = std::string(captions.at(row).value_or("")),
                    .latents_chw = {},
                    .states_tw = {}};
      DARKROOM_ASSIGN_OR_RETURN(sample.latents_chw, read_tensor(*batch, layout.latents_name, layout.latents_shape, row));
      if (layout.has_states()) {
        DARKROOM_ASSIGN_OR_RETURN(sample.states_tw, read_tensor(*batch, layout.states_name, layout.states_shape, row));
      }
      samples.push_back(std::move(sample));
    }
  }
  return {};
}

/// The transformed inputs of an item's rows that are wanted, by key.
Status read_inputs(const JobPlan& plan, const WorkItem& work, const std::string& caption_column, const RowEncoder& encoder,
                   PictureDecoder& decoder, std::map<std::string, Image>& wanted) {
  DARKROOM_ASSIGN_OR_RETURN(const auto table, plan.open_input(work));
  DARKROOM_ASSIGN_OR_RETURN(const ImageColumns columns, find_image_columns(*table->schema(), table->path(), caption_column));
  DARKROOM_ASSIGN_OR_RETURN(const auto range, table->read_rows(work.first_row, work.num_rows, names_of(columns), {.batch_bytes = 4 << 20}));
  int64_t list_row = work.list_row;
  while (true) {
    DARKROOM_ASSIGN_OR_RETURN(const auto batch, range->next());
    if (batch == nullptr) {
      return {};
    }
    DARKROOM_ASSIGN_OR_RETURN(const ImageRows rows, ImageRows::open(table->path(), columns, *batch, list_row));
    for (int64_t i = 0; i < rows.num_rows(); ++i) {
      const ImageRow row = rows.at(i).row;
      const auto found = wanted.find(row.key);
      if (found != wanted.end() && found->second.pixels.empty()) {
        DARKROOM_ASSIGN_OR_RETURN(RowResult<PreparedRow> prepared, encoder.prepare(row, decoder));
        if (prepared.is_ok()) {
          found->second = std::move(prepared).value().square;
        }
      }
    }
    list_row += batch->num_rows();
  }
}

std::span<const float> floats_of(const torch::Tensor& tensor) {
  return {tensor.const_data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

Result<std::vector<ContactSheetCell>> draw_row(AutoencoderKL vae, const Sample& sample, const Image& input) {
  std::vector<ContactSheetCell> cells = {{input, sample.caption}};
  for (int64_t channel = 0; channel < sample.latents_chw.size(0); ++channel) {
    const torch::Tensor plane_hw = sample.latents_chw[channel].contiguous();
    cells.push_back({draw_heat_map(floats_of(plane_hw), static_cast<int>(plane_hw.size(0)), static_cast<int>(plane_hw.size(1))),
                     fmt::format("{:.2f} to {:.2f}", plane_hw.min().item<float>(), plane_hw.max().item<float>())});
  }
  if (sample.states_tw.defined()) {
    const torch::Tensor& states_tw = sample.states_tw;
    cells.push_back({draw_heat_map(floats_of(states_tw), static_cast<int>(states_tw.size(0)), static_cast<int>(states_tw.size(1))),
                     fmt::format("{:.2f} to {:.2f}", states_tw.min().item<float>(), states_tw.max().item<float>())});
  }
  DARKROOM_ASSIGN_OR_RETURN(Image decoded, decode_stored_latents(vae, sample.latents_chw));
  cells.push_back({std::move(decoded), sample.key});
  return cells;
}

std::vector<std::string> column_titles(const LatentsLayout& layout) {
  std::vector<std::string> titles = {"input"};
  for (int64_t channel = 0; channel < layout.latents_shape[0]; ++channel) {
    titles.push_back(fmt::format("latent {}", channel));
  }
  if (layout.has_states()) {
    titles.push_back("caption states");
  }
  titles.push_back("decoded");
  return titles;
}

}  // namespace

Status write_process_picture(const JobRun& run, const RowEncoder& encoder, const ProcessJobOptions& options, const LatentsLayout& layout,
                             const Location& picture) {
  const auto num_samples = static_cast<size_t>(options.num_visualized);
  DARKROOM_ASSIGN_OR_RETURN(const auto decoder, open_decoder(options.decoder_program, kAnySize, {}));
  std::vector<Sample> samples;
  std::map<std::string, Image> inputs;
  for (const auto& [item, part] : run.plan().parts()) {
    if (samples.size() >= num_samples || item >= run.plan().num_items()) {  // Those behind are another run's (--extend).
      break;
    }
    DARKROOM_RETURN_IF_ERROR(read_samples(run.output() / part.name.text(), layout, num_samples, samples));
    for (const Sample& sample : samples) {
      inputs.try_emplace(sample.key);
    }
    DARKROOM_RETURN_IF_ERROR(read_inputs(run.plan(), run.plan().item(item), options.caption_column, encoder, *decoder, inputs));
  }
  std::vector<std::vector<ContactSheetCell>> rows;
  for (const Sample& sample : samples) {
    DARKROOM_ASSIGN_OR_RETURN(rows.emplace_back(), draw_row(encoder.models().vae, sample, inputs[sample.key]));
  }
  const int side = std::max(128, encoder.options().transform.resolution);
  const Image sheet = render_contact_sheet(rows, {.cell_width = side, .cell_height = side, .column_titles = column_titles(layout)});
  return picture.store->replace_small(picture.path, encode_png(sheet));
}

}  // namespace darkroom
