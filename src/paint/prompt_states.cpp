#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/paint/painter.h"
#include "darkroom/paint/recorded_memory.h"

namespace darkroom {
namespace {

constexpr int64_t kTextBatch = 32;  // Chunks the text encoder sees at a time.

// Whether a mean is all rounding: that of states (T, W) whose true mean is 0, because the norm behind the last layer has no bias. An error
// of a norm is one of its row.
bool is_zero(const torch::Tensor& mean, const torch::Tensor& states_tw) {
  constexpr double kSafety = 4.0;
  const double epsilon = states_tw.scalar_type() == torch::kFloat32    ? 0x1p-23
                         : states_tw.scalar_type() == torch::kBFloat16 ? 0x1p-7
                                                                       : 0x1p-10;
  const double size = states_tw.to(torch::kFloat32).abs().mean().item<double>();
  return std::abs(mean.item<double>()) <= kSafety * epsilon * size / std::sqrt(static_cast<double>(states_tw.size(0)));
}

// states (T, W) of one chunk.
torch::Tensor apply_weights(const torch::Tensor& states_tw, const std::vector<float>& weights) {
  const torch::Tensor plain = states_tw.to(torch::kFloat32);
  const torch::Tensor factors = upload(torch::tensor(weights, torch::kFloat32), states_tw.device()).unsqueeze(1);
  torch::Tensor weighted = plain * factors;
  const torch::Tensor mean = plain.mean();
  if (!is_zero(mean, states_tw)) {
    weighted = weighted * (mean / weighted.mean());
  }
  return weighted.to(states_tw.scalar_type());
}

}  // namespace

Status check_prompts(const PaintRequest& request) {
  if (request.reading.syntax == PromptSyntax::kWeighted) {
    for (const std::string& prompt : request.prompts) {
      DARKROOM_RETURN_IF_ERROR(parse_weighted_prompt(prompt).status());
    }
    return parse_weighted_prompt(request.negative).status();
  }
  return Status::ok();
}

// T tokens of one chunk; ids (N, T) become states (N, T, W).
torch::Tensor Painter::encode_ids(const torch::Tensor& ids_nt) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> states;
  for (const torch::Tensor& part : upload(ids_nt.to(torch::kInt64), place_of(*text_encoder_).device).split(kTextBatch)) {
    states.push_back(with_memory_for([&] { return text_encoder_->forward(part); }));
  }
  return torch::cat(states);
}

Result<torch::Tensor> Painter::encode_prompts(std::span<const std::string> prompts, const PromptReading& reading, int64_t least_chunks) {
  const torch::NoGradGuard no_grad;
  std::map<std::string, size_t> index_of;  // Of distinct prompts.
  std::vector<std::vector<PromptChunk>> distinct;
  std::vector<size_t> index_of_prompt;
  auto num_chunks = static_cast<size_t>(least_chunks);
  for (const std::string& prompt : prompts) {
    const auto [found, is_new] = index_of.try_emplace(prompt, distinct.size());
    if (is_new) {
      DARKROOM_ASSIGN_OR_RETURN(TokenizedPrompt tokenized, tokenize_prompt(*tokenizer_, prompt, reading));
      num_chunks = std::max(num_chunks, tokenized.chunks.size());
      distinct.push_back(std::move(tokenized.chunks));
    }
    index_of_prompt.push_back(found->second);
  }
  std::vector<torch::Tensor> ids;
  for (std::vector<PromptChunk>& chunks : distinct) {
    chunks.resize(num_chunks, empty_chunk(*tokenizer_));
    for (const PromptChunk& chunk : chunks) {
      ids.push_back(torch::tensor(chunk.ids, torch::kInt32));
    }
  }
  const torch::Tensor states_ntw = encode_ids(torch::stack(ids));
  std::vector<torch::Tensor> whole;
  int64_t row = 0;
  for (const std::vector<PromptChunk>& chunks : distinct) {
    std::vector<torch::Tensor> parts;
    for (const PromptChunk& chunk : chunks) {
      const torch::Tensor states_tw = states_ntw[row++];
      parts.push_back(chunk.has_weights() ? apply_weights(states_tw, chunk.weights) : states_tw);
    }
    whole.push_back(torch::cat(parts));
  }
  std::vector<torch::Tensor> of_prompts;
  for (const size_t index : index_of_prompt) {
    of_prompts.push_back(whole[index]);
  }
  return torch::stack(of_prompts);
}

Result<std::string> Painter::lost_text(const std::string& prompt, const PromptReading& reading) const {
  DARKROOM_ASSIGN_OR_RETURN(TokenizedPrompt tokenized, tokenize_prompt(*tokenizer_, prompt, reading));
  return std::move(tokenized.lost_text);
}

Result<std::vector<int64_t>> Painter::chunk_counts(const PaintRequest& request) const {
  const auto count = [&](const std::string& text) -> Result<int64_t> {
    DARKROOM_ASSIGN_OR_RETURN(const TokenizedPrompt tokenized, tokenize_prompt(*tokenizer_, text, request.reading));
    return static_cast<int64_t>(tokenized.chunks.size());
  };
  int64_t least = 1;
  if (Guidance{request.guidance, request.guidance_rescale}.is_active()) {
    DARKROOM_ASSIGN_OR_RETURN(least, count(request.negative));
  }
  std::vector<int64_t> counts;
  for (const std::string& prompt : request.prompts) {
    DARKROOM_ASSIGN_OR_RETURN(const int64_t own, count(prompt));
    counts.push_back(std::max(own, least));
  }
  return counts;
}

// REQUIRES: prompts of equal chunk_counts.
Result<PromptStates> Painter::encode_request(const PaintRequest& request, std::span<const std::string> prompts) {
  const torch::Device device = place().device;
  const auto chunks_of = [](const torch::Tensor& states_ntw) { return states_ntw.size(1) / ClipTokenizer::kContextLength; };
  PromptStates states;
  if (!Guidance{request.guidance, request.guidance_rescale}.is_active()) {
    DARKROOM_ASSIGN_OR_RETURN(states.positive_ntw, encode_prompts(prompts, request.reading));
    states.positive_ntw = states.positive_ntw.to(device);
    return states;
  }
  DARKROOM_ASSIGN_OR_RETURN(const TokenizedPrompt negative, tokenize_prompt(*tokenizer_, request.negative, request.reading));
  DARKROOM_ASSIGN_OR_RETURN(states.positive_ntw, encode_prompts(prompts, request.reading, static_cast<int64_t>(negative.chunks.size())));
  DARKROOM_ASSIGN_OR_RETURN(states.negative_ntw,
                            encode_prompts(std::span(&request.negative, 1), request.reading, chunks_of(states.positive_ntw)));
  states.positive_ntw = states.positive_ntw.to(device);
  states.negative_ntw = states.negative_ntw.to(device);
  return states;
}

}  // namespace darkroom
