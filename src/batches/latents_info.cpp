#include "darkroom/batches/latents_info.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "darkroom/core/nested_text.h"
#include "darkroom/core/sha256.h"
#include "darkroom/files/local_copy.h"
#include "darkroom/tensor/safetensors.h"

namespace darkroom {
namespace {

/// A shard's record as it is compared.
struct ParsedRecord {
  LatentsDatasetInfo info;
  std::string empty_caption_sha256;
};

Result<ParsedRecord> parse_record(const LatentsRecord& record) {
  const auto json = parse_json(record.text);
  if (!json.is_object()) {
    return Status::corrupt_data("the shard's footer key darkroom.latents is no JSON object:", record.shard.uri());
  }
  ParsedRecord parsed;
  try {
    parsed.info.vae_fingerprint = json.value("vae_fingerprint", std::string());
    parsed.info.text_encoder_fingerprint = json.value("text_encoder_fingerprint", std::string());
    parsed.info.tokenizer_dialect = json.value("tokenizer_dialect", std::string());
    parsed.info.scaling_factor = json.value("scaling_factor", 0.0);
    parsed.empty_caption_sha256 = json.value("empty_caption_sha256", std::string());
  } catch (const nlohmann::json::exception& error) {
    return Status::corrupt_data("the shard's footer key darkroom.latents has a field of another type:", record.shard.uri(), error.what());
  }
  return parsed;
}

/// A field of a dataset's records, by the shard that gave its value.
template <typename Value>
struct AgreedField {
  Value& value;
  const char* what;
  std::string shard = {};

  /// What a shard does not say contradicts none.
  Status agree(const Value& other, const Location& place) {
    if (other == Value()) {
      return {};
    }
    if (value == Value()) {
      value = other;
      shard = place.uri();
    }
    return value == other ? Status::ok()
                          : Status::failed_precondition(
                                fmt::format("two shards of the dataset were made with another {}; train on each make alone, or process one "
                                            "of them again (shard, shard, value, value):",
                                            what),
                                shard, place.uri(), value, other);
  }
};

Status not_of_these_shards(const std::string& shown) {
  return Status::failed_precondition(
      "the empty caption's states are of another text encoder than the shards beside them; remove the file and run process on this folder "
      "again, which writes it anew:",
      shown);
}

Status perhaps_not_of_these_shards(const std::string& shown) {
  return Status::failed_precondition(
      "the empty caption's states have another hash than the shards beside them record, and do not say which text encoder made them; if "
      "the folder held another job before, remove the file and run process on this folder again, which writes it anew:",
      shown);
}

}  // namespace

Result<LatentsDatasetInfo> read_latents_info(const IndexedDataset& dataset) {
  LatentsDatasetInfo info;
  const auto take = [&info](const Status& agreed) { info.unfit = info.unfit.is_ok() ? agreed : info.unfit; };
  AgreedField<std::string> vae{info.vae_fingerprint, "VAE"};
  AgreedField<std::string> text_encoder{info.text_encoder_fingerprint, "text encoder"};
  AgreedField<std::string> dialect{info.tokenizer_dialect, "tokenizer dialect"};
  AgreedField<double> scaling_factor{info.scaling_factor, "scaling factor"};
  for (const LatentsRecord& record : dataset.records) {
    DARKROOM_ASSIGN_OR_RETURN(const ParsedRecord parsed, parse_record(record));
    take(vae.agree(parsed.info.vae_fingerprint, record.shard));
    take(text_encoder.agree(parsed.info.text_encoder_fingerprint, record.shard));
    take(dialect.agree(parsed.info.tokenizer_dialect, record.shard));
    take(scaling_factor.agree(parsed.info.scaling_factor, record.shard));
    if (!parsed.empty_caption_sha256.empty()) {
      info.empty_caption_hashes.push_back(parsed.empty_caption_sha256);
    }
  }
  return info;
}

Result<EmptyCaption> read_empty_caption_file(const Location& folder) {
  const Location place = folder / kEmptyCaptionFile;
  DARKROOM_ASSIGN_OR_RETURN(const LocalCopy copy, LocalCopy::fetch(place));
  DARKROOM_ASSIGN_OR_RETURN(const auto file, SafetensorsFile::open(copy.path()));
  if (file->names().size() != 1) {
    return Status::corrupt_data("the empty caption's file must hold one tensor (path, tensors):", place.uri(), file->names().size());
  }
  EmptyCaption caption;
  DARKROOM_ASSIGN_OR_RETURN(caption.states_tw, file->tensor(file->names().front()));
  caption.states_tw = caption.states_tw.clone();  // The copy goes.
  caption.sha256 = sha256_hex({static_cast<const char*>(caption.states_tw.const_data_ptr()), caption.states_tw.nbytes()});
  const auto made_by = file->metadata().find(kTextEncoderKey);
  caption.text_encoder_fingerprint = made_by == file->metadata().end() ? "" : made_by->second;
  return caption;
}

Result<DropoutStates> read_empty_caption(const DatasetFiles& dataset, const LatentsDatasetInfo& info,
                                         const std::vector<int64_t>& states_shape) {
  constexpr const char* kWhatFor = "caption dropout needs the empty caption's states that process writes beside its shards";
  const auto states = read_empty_caption_file(dataset.root);
  if (!states.is_ok()) {
    return states.status().with_context(kWhatFor);
  }
  const std::string shown = dataset.place_of(kEmptyCaptionFile).uri();
  if (states->states_tw.sizes() != torch::IntArrayRef(states_shape)) {
    return Status::failed_precondition("the empty caption's states have another shape than the network takes (path, want, got):", shown,
                                       fmt::format("{}", fmt::join(states_shape, "x")),
                                       fmt::format("{}", fmt::join(states->states_tw.sizes(), "x")));
  }
  DropoutStates taken{.states_tw = states->states_tw.to(torch::kFloat32).contiguous()};
  if (!torch::isfinite(taken.states_tw).all().item<bool>()) {
    return Status::corrupt_data("the empty caption's states hold a NaN or an infinity:", shown);
  }
  const bool is_known = !info.text_encoder_fingerprint.empty() && !states->text_encoder_fingerprint.empty();
  const bool has_hash = std::ranges::find(info.empty_caption_hashes, states->sha256) != info.empty_caption_hashes.end();
  if (is_known && states->text_encoder_fingerprint != info.text_encoder_fingerprint) {
    taken.unfit = not_of_these_shards(shown);
  } else if (!is_known && !has_hash && !info.empty_caption_hashes.empty()) {
    taken.doubt = perhaps_not_of_these_shards(shown);
  }
  return taken;
}

}  // namespace darkroom
