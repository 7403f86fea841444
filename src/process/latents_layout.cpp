#include "darkroom/process/latents_layout.h"

#include <arrow/array/util.h>
#include <arrow/util/key_value_metadata.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "darkroom/tables/arrow_files.h"

namespace darkroom {
namespace {

constexpr int kLatentsFormatVersion = 1;

bool is_published(LatentsDialect dialect) {
  return dialect == LatentsDialect::kAnyscale || dialect == LatentsDialect::kRaySummit || dialect == LatentsDialect::kMosaicMl;
}

std::string latents_column_name(LatentsDialect dialect, LatentsKind kind, int resolution) {
  switch (dialect) {
    case LatentsDialect::kAnyscale:
      return fmt::format("latents_{}_bytes", resolution);
    case LatentsDialect::kMosaicMl:
      return fmt::format("latents_{}", resolution);
    default:
      return fmt::format("image_{}_{}", kind == LatentsKind::kSample ? "latents" : "moments", resolution);
  }
}

/// A column of encoded pictures that Hugging Face's datasets shall show as pictures.
bool is_picture(LatentsDialect dialect, const arrow::Field& field) {
  constexpr std::array<std::string_view, 4> kNames = {"image", "jpg", "png", "webp"};
  return dialect == LatentsDialect::kHuggingFace && field.type()->id() == arrow::Type::BINARY &&
         std::ranges::find(kNames, field.name()) != kNames.end();
}

constexpr const char* kFeaturesKey = "huggingface";

std::shared_ptr<arrow::DataType> picture_type() {
  return arrow::struct_({arrow::field("bytes", arrow::binary()), arrow::field("path", arrow::utf8())});
}

/// A feature of Hugging Face's datasets; null where that package makes it of Arrow's type itself.
nlohmann::json feature_of(const arrow::Field& field) {
  if (field.metadata() != nullptr) {
    const nlohmann::json array = nlohmann::json::parse(*field.metadata()->Get("ARROW:extension:metadata"));
    return {{"shape", array[0]}, {"dtype", array[1]}, {"_type", fmt::format("Array{}D", array[0].size())}};
  }
  if (field.type()->Equals(*picture_type())) {
    return {{"_type", "Image"}};
  }
  const arrow::Type::type id = field.type()->id();
  if (arrow::is_primitive(id) && id != arrow::Type::BOOL && !arrow::is_temporal(id)) {
    return {{"dtype", id == arrow::Type::HALF_FLOAT ? "float16"
                      : id == arrow::Type::FLOAT    ? "float32"
                      : id == arrow::Type::DOUBLE   ? "float64"
                                                    : field.type()->ToString()},
            {"_type", "Value"}};
  }
  return id == arrow::Type::STRING || id == arrow::Type::BINARY ? nlohmann::json{{"dtype", field.type()->ToString()}, {"_type", "Value"}}
                                                                : nlohmann::json();
}

std::string describe_features(const arrow::Schema& schema) {
  nlohmann::json features = nlohmann::json::object();
  for (const auto& field : schema.fields()) {
    if (nlohmann::json feature = feature_of(*field); !feature.is_null()) {
      features[field->name()] = std::move(feature);
    }
  }
  return nlohmann::json{{"info", {{"features", std::move(features)}}}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::string_view latents_dialect_name(LatentsDialect dialect) {
  switch (dialect) {
    case LatentsDialect::kDarkroom:
      return "darkroom";
    case LatentsDialect::kAnyscale:
      return "anyscale";
    case LatentsDialect::kRaySummit:
      return "ray-summit";
    case LatentsDialect::kMosaicMl:
      return "mosaicml";
    case LatentsDialect::kHuggingFace:
      break;
  }
  return "huggingface";
}

nlohmann::json describe_transform(const TransformOptions& options) {
  return {{"resolution", options.resolution},
          {"resize", filter_name(options.filter)},
          {"crop", crop_name(options.crop)},
          {"orientation", orientation_name(options.orientation)}};
}

Status check_dialect(const ProcessJobOptions& options) {
  const std::string_view name = latents_dialect_name(options.dialect);
  if (is_published(options.dialect) && options.latents != LatentsKind::kSample) {
    return Status::invalid_argument("this --output-dialect has no column of moments; use --latents sample, darkroom or huggingface:", name);
  }
  if (is_published(options.dialect) && options.text != TextKind::kEmbeddings) {
    return Status::invalid_argument("this --output-dialect has no column of token ids; use --text embeddings, darkroom or huggingface:",
                                    name);
  }
  return Status::ok();
}

TensorElement published_element(LatentsDialect dialect) {
  const bool was_float32 = dialect == LatentsDialect::kAnyscale || dialect == LatentsDialect::kRaySummit;
  return was_float32 ? TensorElement::kFloat32 : TensorElement::kFloat16;
}

std::shared_ptr<arrow::DataType> ids_type(LatentsDialect dialect) {
  const bool is_nullable = dialect == LatentsDialect::kHuggingFace;
  return arrow::fixed_size_list(arrow::field("item", arrow::uint16(), is_nullable), ClipTokenizer::kContextLength);
}

TensorForm LatentsLayout::form() const {
  switch (dialect) {
    case LatentsDialect::kAnyscale:
    case LatentsDialect::kRaySummit:
      return TensorForm::kRayTensor;
    case LatentsDialect::kHuggingFace:
      return TensorForm::kHuggingFaceArray;
    default:
      return TensorForm::kFixedShape;
  }
}

std::shared_ptr<arrow::Schema> LatentsLayout::schema() const {
  const bool is_nullable = dialect == LatentsDialect::kHuggingFace;  // Its features know no other fields.
  arrow::FieldVector fields = {arrow::field("key", arrow::utf8(), is_nullable), arrow::field("caption", arrow::utf8(), is_nullable),
                               arrow::field("width", arrow::int32(), is_nullable), arrow::field("height", arrow::int32(), is_nullable),
                               tensor_field(latents_name, form(), element, latents_shape)};
  if (has_states()) {
    fields.push_back(tensor_field(states_name, form(), element, states_shape));
  }
  if (has_ids()) {
    fields.push_back(arrow::field("caption_ids", ids_type(dialect), is_nullable));
  }
  for (const auto& field : kept) {
    fields.push_back(is_picture(dialect, *field) ? field->WithType(picture_type()) : field);
  }
  const auto schema = arrow::schema(std::move(fields));
  // Of a file that holds an Arrow schema, readers take no other metadata for the schema's than what stands in it.
  return dialect == LatentsDialect::kHuggingFace
             ? schema->WithMetadata(arrow::key_value_metadata({kFeaturesKey}, {describe_features(*schema)}))
             : schema;
}

KeyValues LatentsLayout::footer_pairs() const {
  KeyValues pairs = {{kLatentsFooterKey, footer}};
  if (dialect == LatentsDialect::kHuggingFace) {
    pairs.emplace_back(kFeaturesKey, describe_features(*schema()));
  }
  return pairs;
}

Status check_ids(TextKind text, int64_t vocabulary_size) {
  constexpr int64_t kMostIds = int64_t{1} << 16;
  if (text == TextKind::kEmbeddings || vocabulary_size <= kMostIds) {
    return Status::ok();
  }
  return Status::failed_precondition(
      "token ids are stored in 16 bits, and the tokenizer has more; process with --text embeddings (ids, most):", vocabulary_size,
      kMostIds);
}

LatentsLayout make_layout(const ProcessEncoder& encoder, const ProcessJobOptions& options, const std::string& empty_states_sha256,
                          arrow::FieldVector kept) {
  const EncoderFacts& facts = encoder.facts();
  LatentsLayout layout;
  layout.dialect = options.dialect;
  layout.text = options.text;
  layout.kept = std::move(kept);
  layout.latents_name = latents_column_name(options.dialect, options.latents, options.transform.resolution);
  layout.states_name = is_published(options.dialect) ? "caption_latents" : "caption_embeddings";
  layout.latents_shape = facts.latents_shape;
  layout.states_shape = facts.states_shape;
  layout.element = facts.element;
  nlohmann::json footer = {{"version", kLatentsFormatVersion},
                           {"vae_fingerprint", facts.vae_fingerprint},
                           {"text_encoder_fingerprint", facts.text_encoder_fingerprint},
                           {"tokenizer_fingerprint", encoder.tokenizer().fingerprint()},
                           {"tokenizer_dialect", tokenizer_dialect_name(encoder.tokenizer().dialect())},
                           {"scaling_factor", facts.scaling_factor},
                           {"resolution", options.transform.resolution},
                           {"transform", describe_transform(options.transform)},
                           {"seed", options.seed},
                           {"text_length", layout.states_shape[0]},
                           {"text_width", layout.states_shape[1]},
                           {"empty_caption_sha256", empty_states_sha256}};
  if (options.dialect != LatentsDialect::kDarkroom) {
    footer["dialect"] = latents_dialect_name(options.dialect);
  }
  layout.footer = footer.dump();
  return layout;
}

Result<arrow::ArrayVector> store_kept(const LatentsLayout& layout, arrow::ArrayVector copied) {
  for (size_t i = 0; i < copied.size(); ++i) {
    if (!is_picture(layout.dialect, *layout.kept[i])) {
      continue;
    }
    auto paths = arrow::MakeArrayOfNull(arrow::utf8(), copied[i]->length());
    DARKROOM_RETURN_IF_ARROW_ERROR(paths.status(), "storing a column of pictures");
    // A picture that is not there is a null, as datasets writes it: the struct takes the nulls of its bytes.
    copied[i] = std::make_shared<arrow::StructArray>(picture_type(), copied[i]->length(), arrow::ArrayVector{copied[i], *paths},
                                                     copied[i]->null_bitmap(), copied[i]->null_count());
  }
  return copied;
}

}  // namespace darkroom
