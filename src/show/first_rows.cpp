#include "first_rows.h"

#include <arrow/scalar.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "cell_text.h"
#include "column_study.h"
#include "darkroom/core/utf8.h"
#include "darkroom/encode/stored_latents.h"
#include "darkroom/image/decode.h"
#include "darkroom/image/resample.h"
#include "darkroom/nn/model_folder.h"
#include "darkroom/tables/bytes_column.h"
#include "darkroom/tables/tensor_column.h"

namespace darkroom {
namespace {

constexpr int64_t kMaxCellCharacters = 48;
constexpr size_t kPicturesPerRow = 6;
constexpr int64_t kMaxChannels = 16;
constexpr int64_t kMostDecodedPlaces = 256 * 256;  // Of latents: 2048 pixels a side.

std::string image_cell(const std::optional<std::string_view>& bytes) {
  if (!bytes) {
    return "null";
  }
  const auto header = probe_image(std::as_bytes(std::span(*bytes)), kAnySize);
  const std::string size = bytes_text(static_cast<int64_t>(bytes->size()));
  return header.is_ok() ? fmt::format("{} {}x{}, {}", mime_type(header->format), header->width, header->height, size)
                        : fmt::format("{}, {}", header.error().name(), size);
}

std::string value_cell(const arrow::Array& array, int64_t row) {
  const auto scalar = array.GetScalar(row);
  return scalar.ok() ? clipped_text((*scalar)->ToString(), kMaxCellCharacters) : scalar.status().ToString();
}

bool holds_bytes(const arrow::DataType& type) {
  return type.id() == arrow::Type::BINARY || type.id() == arrow::Type::LARGE_BINARY || type.id() == arrow::Type::FIXED_SIZE_BINARY;
}

// One column of a batch as cells, appended to `rows`.
Status add_cells(const arrow::RecordBatch& batch, int column, const TableKind& kind, const BatchPlace& place,
                 std::vector<std::vector<std::string>>& rows, size_t first) {
  const std::string& name = batch.schema()->field(column)->name();
  const auto array = batch.column(column);
  std::optional<BytesColumn> bytes;
  std::string tensor;
  if (name == kind.image) {
    DARKROOM_ASSIGN_OR_RETURN(bytes, open_image_column(place.part.path, name, array));
  } else if (auto text = BytesColumn::open(place.part.path, name, array); text.is_ok()) {
    bytes = std::move(text).value();
  }
  for (const TensorColumnName& one : kind.tensors) {
    if (one.name == name) {
      DARKROOM_ASSIGN_OR_RETURN(const TensorColumn opened, open_tensor_column(batch, name, one.shapes));
      tensor = fmt::format("tensor {}", shape_text(opened.shape()));
    }
  }
  for (int64_t row = 0; row < batch.num_rows(); ++row) {
    auto& cells = rows[first + static_cast<size_t>(row)];
    if (array->IsNull(row)) {
      cells.emplace_back("null");
    } else if (!tensor.empty()) {
      cells.push_back(tensor);
    } else if (name == kind.image) {
      cells.push_back(image_cell(bytes->at(row)));
    } else if (holds_bytes(*array->type()) && bytes) {
      cells.push_back(bytes_text(static_cast<int64_t>(bytes->at(row)->size())));
    } else {
      cells.push_back(bytes ? clipped_text(bytes->at(row).value_or("null"), kMaxCellCharacters) : value_cell(*array, row));
    }
  }
  return Status::ok();
}

// Means over blocks of `step_x` x `step_y` pixels; what is left at the right and at the bottom is left out.
Image block_means(const Image& image, int step_x, int step_y) {
  Image means = Image::filled(image.width / step_x, image.height / step_y, image.num_channels);
  const auto num_channels = static_cast<size_t>(image.num_channels);
  for (int y = 0; y < means.height; ++y) {
    for (int x = 0; x < means.width; ++x) {
      for (size_t channel = 0; channel < num_channels; ++channel) {
        uint64_t sum = 0;
        for (int row = y * step_y; row < (y + 1) * step_y; ++row) {
          for (int column = x * step_x; column < (x + 1) * step_x; ++column) {
            sum += image.row(row)[static_cast<size_t>(column) * num_channels + channel];
          }
        }
        const uint64_t count = static_cast<uint64_t>(step_x) * static_cast<uint64_t>(step_y);
        means.row(y)[static_cast<size_t>(x) * num_channels + channel] = static_cast<uint8_t>((sum + count / 2) / count);
      }
    }
  }
  return means;
}

/// Of a picture, which keeps its form, as far as whole pixels let it.
DecodedSize shown_size(int width, int height) {
  const double scale = std::min({1.0, static_cast<double>(kShownPixels) / width, static_cast<double>(kShownPixels) / height});
  return {.width = std::max(1, static_cast<int>(width * scale)), .height = std::max(1, static_cast<int>(height * scale))};
}

// A picture for a cell. Far longer sides are averaged first: the weights of a resize grow with the side that it reads.
Image shrunk(const Image& large) {
  constexpr int kResizedSide = 16 * kShownPixels;
  const int step_x = std::max(1, large.width / kResizedSide), step_y = std::max(1, large.height / kResizedSide);
  const bool is_far_longer = step_x > 1 || step_y > 1;
  const Image means = is_far_longer ? block_means(large, step_x, step_y) : Image();
  const Image& image = is_far_longer ? means : large;
  const DecodedSize size = shown_size(image.width, image.height);
  return resize(image, size.width, size.height, Filter::kBilinear);
}

using SheetRows = std::vector<std::vector<ContactSheetCell>>;

// A picture and its caption; a picture that is refused leaves its place free and its caption says why.
Result<ContactSheetCell> picture_cell(std::string_view bytes, std::string caption, const ShrinkPicture& shrink) {
  DARKROOM_ASSIGN_OR_RETURN(RowResult<Image> image, shrink(bytes));
  return image.is_ok() ? ContactSheetCell{std::move(*image), std::move(caption)}
                       : ContactSheetCell{{}, fmt::format("[{}] {}", image.error().name(), caption)};
}

ShrinkPicture shrink_here(const InspectOptions& options) {
  return [&options](std::string_view bytes) -> Result<RowResult<Image>> {
    if (static_cast<int64_t>(bytes.size()) > options.max_bytes) {
      return RowResult<Image>(RowError{.code = RowErrorCode::kTooLarge});
    }
    auto image = decode_image(std::as_bytes(std::span(bytes)), {.min_size = 1, .max_pixels = options.max_pixels});
    return image.is_ok() ? RowResult<Image>(shrunk(*image)) : image;
  };
}

/// As `serve --dataset` decodes them: in a process of its own. A decoder that is lost ends the inspection.
ShrinkPicture shrink_apart(const InspectOptions& options, std::unique_ptr<PictureDecoder>& decoder, const std::stop_token& stop) {
  return [&options, &decoder, &stop](std::string_view bytes) {
    const ImageLimits limits{.min_size = 1, .max_pixels = options.max_pixels};
    return shrink_with(bytes, options.max_bytes, limits, decoder, [&] { return options.open_decoder(stop); });
  };
}

Result<SheetRows> picture_cells(FileSystem& files, const TableParts& parts, const TableKind& kind, const RowSpan& span,
                                const ShrinkPicture& shrink, const std::stop_token& stop) {
  SheetRows rows;
  const auto visit = [&](const arrow::RecordBatch& batch, const BatchPlace& place) -> Status {
    DARKROOM_ASSIGN_OR_RETURN(const auto images, open_image_column(place.part.path, kind.image, batch.column(0)));
    DARKROOM_ASSIGN_OR_RETURN(const auto captions, BytesColumn::open(place.part.path, kind.caption, batch.column(1)));
    for (int64_t row = 0; row < batch.num_rows(); ++row) {
      if (rows.empty() || rows.back().size() == kPicturesPerRow) {
        rows.emplace_back();
      }
      std::string caption = replace_invalid_utf8(captions.at(row).value_or("")).first;
      DARKROOM_ASSIGN_OR_RETURN(auto cell, picture_cell(images.at(row).value_or(""), std::move(caption), shrink));
      rows.back().push_back(std::move(cell));
    }
    return Status::ok();
  };
  DARKROOM_RETURN_IF_ERROR(visit_dataset_rows(files, parts, span, {kind.image, kind.caption}, stop, visit));
  return rows;
}

/// The picture of stored latents [C, h, w].
using DecodeLatents = std::function<Result<Image>(const torch::Tensor& stored_chw)>;

/// A row's channels as heat maps and, where they are decoded, its picture. `values`: room that rows share.
Result<std::vector<ContactSheetCell>> channel_cells(const TensorColumn& latents, int64_t row, const DecodeLatents& decode,
                                                    std::vector<float>& values) {
  std::vector<ContactSheetCell> cells;
  if (latents.is_null(row)) {
    cells.push_back({{}, "null"});
    return cells;
  }
  values.resize(static_cast<size_t>(latents.num_elements()));  // Which a null row's shape may say of none that is there.
  latents.read_floats(row, values);
  const auto& shape = latents.shape();
  const auto plane = static_cast<size_t>(shape[1] * shape[2]);
  for (int64_t c = 0; c < std::min(shape[0], kMaxChannels); ++c) {
    Image map = draw_heat_map(std::span(values).subspan(static_cast<size_t>(c) * plane, plane), static_cast<int>(shape[1]),
                              static_cast<int>(shape[2]));
    const bool is_large = std::max(map.width, map.height) > kShownPixels;
    cells.push_back({is_large ? shrunk(map) : std::move(map), fmt::format("channel {}", c)});
  }
  if (decode) {
    DARKROOM_ASSIGN_OR_RETURN(const Image image, decode(torch::from_blob(values.data(), shape, torch::kFloat32)));
    cells.push_back({shrunk(image), "decoded"});
  }
  return cells;
}

Result<SheetRows> latent_cells(FileSystem& files, const TableParts& parts, const TableKind& kind, const RowSpan& span,
                               const DecodeLatents& decode, const std::stop_token& stop) {
  SheetRows rows;
  std::vector<float> values;
  const auto column = std::find_if(kind.tensors.begin(), kind.tensors.end(), [](const auto& one) { return one.is_latents; });
  const auto visit = [&](const arrow::RecordBatch& batch, const BatchPlace& place) -> Status {
    DARKROOM_ASSIGN_OR_RETURN(const TensorColumn latents, open_tensor_column(batch, column->name, column->shapes));
    std::optional<BytesColumn> captions;
    if (!kind.caption.empty()) {
      DARKROOM_ASSIGN_OR_RETURN(captions, BytesColumn::open(place.part.path, kind.caption, batch.column(1)));
    }
    const auto& shape = latents.shape();
    if (shape.size() != 3) {
      return Status::failed_precondition("a sheet needs latents of channels x height x width (column, shape):", column->name,
                                         shape_text(shape));
    }
    for (int64_t row = 0; row < batch.num_rows(); ++row) {
      DARKROOM_ASSIGN_OR_RETURN(auto cells, channel_cells(latents, row, decode, values));
      const bool is_labelled = !captions || latents.is_null(row);
      cells.front().caption = is_labelled ? cells.front().caption : replace_invalid_utf8(captions->at(row).value_or("")).first;
      rows.push_back(std::move(cells));
    }
    return Status::ok();
  };
  std::vector<std::string> columns = {column->name};
  if (!kind.caption.empty()) {
    columns.push_back(kind.caption);
  }
  DARKROOM_RETURN_IF_ERROR(visit_dataset_rows(files, parts, span, columns, stop, visit));
  return rows;
}

}  // namespace

Result<RowResult<Image>> shrink_with(std::string_view bytes, int64_t max_bytes, const ImageLimits& limits,
                                     std::unique_ptr<PictureDecoder>& decoder, const OpenPictureDecoder& open) {
  if (static_cast<int64_t>(bytes.size()) > max_bytes) {
    return RowResult<Image>(RowError{.code = RowErrorCode::kTooLarge});
  }
  const auto encoded = std::as_bytes(std::span(bytes));
  const auto header = probe_image(encoded, limits);
  if (!header.is_ok()) {
    return RowResult<Image>(header.error());
  }
  if (decoder == nullptr) {
    DARKROOM_ASSIGN_OR_RETURN(decoder, open());
  }
  const DecodedSize size = shown_size(header->width, header->height);
  Image image = Image::filled(size.width, size.height, 3);
  DARKROOM_ASSIGN_OR_RETURN(const auto decoded, decoder->resize_to(encoded, size, limits, image.pixels));
  return decoded.is_ok() ? RowResult<Image>(std::move(image)) : RowResult<Image>(decoded.error());
}

Result<ReportTable> rows_table(FileSystem& files, const TableParts& parts, const TableKind& kind, const RowSpan& span,
                               const std::stop_token& stop) {
  ReportTable table;
  for (const std::string& name : parts.schema->field_names()) {
    table.head.push_back(clipped_text(name, kMaxCellCharacters));
  }
  const auto visit = [&](const arrow::RecordBatch& batch, const BatchPlace& place) -> Status {
    const size_t first = table.rows.size();
    table.rows.resize(first + static_cast<size_t>(batch.num_rows()));
    for (int column = 0; column < batch.num_columns(); ++column) {
      DARKROOM_RETURN_IF_ERROR(add_cells(batch, column, kind, place, table.rows, first));
    }
    return Status::ok();
  };
  DARKROOM_RETURN_IF_ERROR(visit_dataset_rows(files, parts, span, parts.schema->field_names(), stop, visit));
  return table;
}

namespace {

Result<SheetRows> first_rows_cells(FileSystem& files, const TableParts& parts, const TableKind& kind, const InspectOptions& options,
                                   const std::stop_token& stop) {
  const RowSpan span{.first = 0, .count = options.num_rows};
  if (!kind.image.empty()) {
    std::unique_ptr<PictureDecoder> decoder;
    const ShrinkPicture shrink = options.open_decoder ? shrink_apart(options, decoder, stop) : shrink_here(options);
    return picture_cells(files, parts, kind, span, shrink, stop);
  }
  DecodeLatents decode;
  if (!options.model.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(AutoencoderKL vae, load_vae(options.model + "/vae"));
    decode = [vae = std::move(vae)](const torch::Tensor& stored_chw) mutable { return decode_stored_latents(vae, stored_chw); };
  }
  return latent_cells(files, parts, kind, span, decode, stop);
}

bool is_shown_apart(const TableKind& kind, const std::string& column) {
  return column == kind.image || column == kind.caption ||
         std::ranges::any_of(kind.tensors, [&](const TensorColumnName& one) { return one.name == column; });
}

/// Without the pictures. Sizes and format of an encoded picture are its cell.
RowCard card_of(const TableKind& kind, const ReportTable& table, const std::vector<std::string>& names, size_t row) {
  RowCard card;
  for (size_t column = 0; column < names.size(); ++column) {
    if (names[column] == kind.image) {
      card.facts.emplace_back("picture", table.rows[row][column]);
    } else if (!is_shown_apart(kind, names[column])) {
      card.facts.emplace_back(table.head[column], table.rows[row][column]);
    }
  }
  return card;
}

std::vector<RowCard> plain_cards(const ReportTable& table) {
  std::vector<RowCard> cards(table.rows.size());
  for (size_t row = 0; row < cards.size(); ++row) {
    for (size_t column = 0; column < table.head.size(); ++column) {
      cards[row].facts.emplace_back(table.head[column], table.rows[row][column]);
    }
  }
  return cards;
}

std::vector<RowCard> cards_of(const TableParts& parts, const TableKind& kind, const ReportTable& table, SheetRows cells) {
  std::vector<RowCard> cards;
  const bool are_latents = kind.image.empty();
  const auto add = [&](std::span<ContactSheetCell> pictures) {
    if (cards.size() == table.rows.size()) {
      return;  // The dataset has grown since.
    }
    RowCard& card = cards.emplace_back(card_of(kind, table, parts.schema->field_names(), cards.size()));
    const bool has_caption = !are_latents || !kind.caption.empty();  // In the place of the first label.
    card.caption = has_caption ? pictures.front().caption : "";
    for (size_t i = 0; i < pictures.size(); ++i) {
      std::string label = i > 0 || !has_caption ? pictures[i].caption : are_latents ? "channel 0" : "";
      card.pictures.push_back({.image = std::move(pictures[i].picture), .label = std::move(label)});
    }
  };
  for (std::vector<ContactSheetCell>& line : cells) {
    if (kind.image.empty()) {
      add(line);
    } else {
      for (ContactSheetCell& cell : line) {
        add(std::span(&cell, 1));
      }
    }
  }
  return cards;
}

// Whoever asks for a row has to hear why it is not decoded.
DecodeLatents decode_within(const AutoencoderKL* vae) {
  if (vae == nullptr) {
    return {};
  }
  return [vae = *vae](const torch::Tensor& stored_chw) mutable -> Result<Image> {
    if (stored_chw.size(1) * stored_chw.size(2) > kMostDecodedPlaces) {
      return Status::invalid_argument("latents of more places are not decoded here (most, shape):", kMostDecodedPlaces,
                                      shape_text(stored_chw.sizes().vec()));
    }
    Result<Image> decoded = decode_stored_latents(vae, stored_chw);
    const bool is_others = !decoded.is_ok() && decoded.status().code() == StatusCode::kFailedPrecondition;
    return is_others ? Result<Image>(Status::invalid_argument(decoded.status().message())) : std::move(decoded);
  };
}

}  // namespace

Result<std::vector<RowCard>> first_row_cards(FileSystem& files, const TableParts& parts, const TableKind& kind, const ReportTable& table,
                                             const InspectOptions& options, const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(SheetRows cells, first_rows_cells(files, parts, kind, options, stop));
  return cards_of(parts, kind, table, std::move(cells));
}

Result<std::vector<RowCard>> row_cards(FileSystem& files, const TableParts& parts, const TableKind& kind, const RowSpan& span,
                                       const RowCardOptions& options, const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(const ReportTable table, rows_table(files, parts, kind, span, stop));
  SheetRows cells;
  if (!kind.image.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(cells, picture_cells(files, parts, kind, span, options.shrink, stop));
  } else if (kind.has_pictures()) {
    DARKROOM_ASSIGN_OR_RETURN(cells, latent_cells(files, parts, kind, span, decode_within(options.vae), stop));
  } else {
    return plain_cards(table);
  }
  return cards_of(parts, kind, table, std::move(cells));
}

Result<Image> first_rows_sheet(FileSystem& files, const TableParts& parts, const TableKind& kind, const InspectOptions& options,
                               const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(const SheetRows rows, first_rows_cells(files, parts, kind, options, stop));
  if (rows.empty()) {
    return Status::failed_precondition("a contact sheet needs a row; the dataset has none:", options.uri);
  }
  return render_contact_sheet(rows, {.cell_width = kShownPixels, .cell_height = kShownPixels});
}

}  // namespace darkroom
