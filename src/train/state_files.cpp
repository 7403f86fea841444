#include "state_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <system_error>

#include "darkroom/core/check.h"
#include "darkroom/files/paths.h"
#include "darkroom/nn/component_config.h"
#include "darkroom/optim/canonical_slices.h"
#include "darkroom/optim/gradient_groups.h"

namespace darkroom {
namespace {

constexpr int64_t kValueBytes = sizeof(float);

/// What rank 0 tells the others.
struct SavingPlan {
  std::string component;
  std::string folder;                 // Where every rank may write; empty: rank 0 alone does.
  std::vector<int64_t> header_bytes;  // Of each file; none without a folder.
};

// As CBOR, which keeps every byte of a path: it need not be UTF-8.
std::string to_bytes(const nlohmann::json& told) {
  std::string bytes;
  nlohmann::json::to_cbor(told, bytes);
  return bytes;
}

std::string to_bytes(const SavingPlan& plan) {
  return to_bytes(nlohmann::json{{"component", plan.component}, {"folder", plan.folder}, {"header_bytes", plan.header_bytes}});
}

std::span<const std::byte> bytes_of_values(const torch::Tensor& values) {
  DARKROOM_CHECK(values.is_contiguous() && values.device().is_cpu(), "what is written is contiguous on the CPU (values):", values.numel());
  return {static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()};
}

StateFile weights_file(const TrainingState& state, const std::string& component_folder, const torch::Tensor& own) {
  StateFile file{.name = join_path(component_folder, kComponentWeightsFile), .specs = {}, .metadata = weights_metadata(), .sections = {}};
  for (const FlatParameters::Entry& entry : state.parameters.entries()) {
    file.specs.push_back({entry.name, torch::kFloat32, entry.shape});
  }
  file.sections.push_back({{0, state.parameters.num_elements()}, own});
  return file;
}

Result<std::unique_ptr<OutputFile>> begin_file(FileSystem& files, const std::string& folder, const StateFile& file) {
  const std::string path = join_path(folder, file.name);
  DARKROOM_RETURN_IF_ERROR(files.create_folders(parent_folder(path)));
  DARKROOM_ASSIGN_OR_RETURN(auto output, files.create(path));
  DARKROOM_ASSIGN_OR_RETURN(const auto header, SafetensorsWriter::begin(*output, file.specs, file.metadata));
  DARKROOM_CHECK(header->order() == file.specs, "parameters have the order of their file:", file.name);
  return output;
}

using OutputFiles = std::vector<std::unique_ptr<OutputFile>>;

Result<OutputFiles> begin_files(FileSystem& files, const std::string& folder, const std::vector<StateFile>& layout) {
  OutputFiles outputs;
  for (const StateFile& file : layout) {
    DARKROOM_ASSIGN_OR_RETURN(auto output, begin_file(files, folder, file));
    outputs.push_back(std::move(output));
  }
  return outputs;
}

int64_t size_of(const StateFile& file, int64_t header_bytes) {
  int64_t size = header_bytes;
  for (const StateSection& section : file.sections) {
    size += kValueBytes * section.range.count;
  }
  return size;
}

// Only this machine's own files can be written at any place. They have their whole size before others write: a client of NFS takes what
// lies behind the end that it knows for zeros, and would send these along with its first values, over another's last.
Result<SavingPlan> plan_saving(FileSystem& files, const std::string& folder, const std::string& component,
                               const std::vector<StateFile>& layout) {
  SavingPlan plan{.component = component, .folder = {}, .header_bytes = {}};
  std::error_code failure;
  const std::filesystem::path absolute = std::filesystem::absolute(folder, failure);
  if (&files != &local_files() || failure) {
    return plan;
  }
  plan.folder = absolute.string();
  for (const StateFile& file : layout) {
    DARKROOM_ASSIGN_OR_RETURN(const FileInfo begun, files.stat(join_path(folder, file.name)));
    plan.header_bytes.push_back(begun.size_bytes);
    DARKROOM_ASSIGN_OR_RETURN(SharedOutput sized, SharedOutput::open(join_path(plan.folder, file.name)));
    DARKROOM_RETURN_IF_ERROR(sized.resize(size_of(file, begun.size_bytes)));
  }
  return plan;
}

// Every rank hears of a failure at any of them, so that all end by an error and none waits for another.
Status agree(Communicator& ranks, const Status& own) {
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<int64_t> codes, gather_numbers(ranks, static_cast<int64_t>(own.code())));
  DARKROOM_RETURN_IF_ERROR(own);
  for (size_t rank = 0; rank < codes.size(); ++rank) {
    const auto code = static_cast<StatusCode>(codes[rank]);
    if (code != StatusCode::kOk) {
      return Status::make(code, "another rank could not write its part of the checkpoint, as it says itself; the rank:", rank);
    }
  }
  return {};
}

// All files, where this rank sees every one: their folder's name is never used twice.
std::vector<SharedOutput> open_shared(const TrainingState& state, const SavingPlan& plan, const std::vector<StateFile>& layout) {
  std::vector<SharedOutput> outputs;
  for (const StateFile& file : layout) {
    Result<SharedOutput> output = state.open_shared(join_path(plan.folder, file.name));
    if (!output.is_ok()) {
      return {};
    }
    outputs.push_back(*std::move(output));
  }
  return outputs;
}

Status write_own_ranges(const StateFile& file, const FlatRange& slice, int64_t offset, SharedOutput& output) {
  for (const StateSection& section : file.sections) {
    const FlatRange mine = slice.overlap(section.range);
    if (mine.count > 0) {
      DARKROOM_RETURN_IF_ERROR(output.write_at(offset + kValueBytes * (mine.first - section.range.first),
                                               bytes_of_values(section.own.narrow(0, mine.first - slice.first, mine.count))));
    }
    offset += kValueBytes * section.range.count;
  }
  return output.sync_and_close();
}

Status write_all_own_ranges(const SavingPlan& plan, const std::vector<StateFile>& layout, const FlatRange& slice,
                            std::vector<SharedOutput>& outputs) {
  for (size_t i = 0; i < layout.size(); ++i) {
    DARKROOM_RETURN_IF_ERROR(write_own_ranges(layout[i], slice, plan.header_bytes[i], outputs[i]));
  }
  return {};
}

// A hash goes through a file in order: files are dealt out to the ranks, and each reads its own back.
Result<FileDigests> digest_by_ranks(const SavingPlan& plan, const std::vector<StateFile>& layout, Communicator& ranks) {
  std::vector<std::string> sha256(layout.size());
  Status own;
  for (size_t i = 0; i < layout.size(); ++i) {
    if (static_cast<int64_t>(i) % ranks.size() != ranks.rank() || !own.is_ok()) {
      continue;
    }
    const std::string path = join_path(plan.folder, layout[i].name);
    const auto digest = digest_file(local_files(), path);
    if (!digest.is_ok()) {
      own = digest.status();
    } else if (const int64_t want = size_of(layout[i], plan.header_bytes[i]); digest->size_bytes != want) {
      own = Status::corrupt_data("a file of the checkpoint has not the size that was written (path, want, got):", path, want,
                                 digest->size_bytes);
    } else {
      sha256[i] = digest->sha256;
    }
  }
  DARKROOM_RETURN_IF_ERROR(agree(ranks, own));
  FileDigests digests;
  for (size_t i = 0; i < layout.size(); ++i) {
    DARKROOM_ASSIGN_OR_RETURN(const std::string told, broadcast_text(ranks, static_cast<int64_t>(i) % ranks.size(), sha256[i]));
    digests[layout[i].name] = {size_of(layout[i], plan.header_bytes[i]), told};
  }
  return digests;
}

// Elements of the canonical order, at rank 0; undefined elsewhere.
Result<torch::Tensor> take_piece(const TrainingState& state, const StateSection& section, const FlatRange& piece) {
  if (state.ranks->size() == 1 && state.snapshot != nullptr) {
    return piece.of(section.own);
  }
  if (state.ranks->size() == 1) {
    return state.parameters.canonical_range(section.own, piece);
  }
  return gather_range(*state.ranks, canonical_slices(state.parameters, state.ranks->size()), piece, section.own);
}

// Through rank 0, whose `output` it is; null elsewhere. Pieces go on coming where they cannot be written, so that all ranks end together.
Status stream_file(const TrainingState& state, const StateFile& file, OutputFile* output) {
  const int64_t most = std::max<int64_t>(1, state.max_piece_bytes / kValueBytes);
  Status written;
  for (const StateSection& section : file.sections) {
    for (int64_t done = 0; done < section.range.count; done += most) {
      const FlatRange piece{section.range.first + done, std::min(most, section.range.count - done)};
      DARKROOM_ASSIGN_OR_RETURN(const torch::Tensor values, take_piece(state, section, piece));
      if (output != nullptr && written.is_ok()) {
        written = output->write(bytes_of_values(values));
      }
    }
  }
  if (output == nullptr || !written.is_ok()) {
    return written;
  }
  DARKROOM_RETURN_IF_ERROR(output->sync());
  return output->close();
}

Status stream_files(const TrainingState& state, const std::vector<StateFile>& layout, const OutputFiles& outputs) {
  Status written;
  for (size_t i = 0; i < layout.size(); ++i) {
    const Status streamed = stream_file(state, layout[i], outputs.empty() ? nullptr : outputs[i].get());
    if (state.ranks->size() == 1 && !streamed.is_ok()) {
      return streamed;
    }
    written = written.is_ok() ? streamed : written;
  }
  return agree(*state.ranks, written);
}

// By all ranks; `outputs` are rank 0's, which hold their headers.
Result<FileDigests> write_together(const TrainingState& state, const SavingPlan& plan, const std::vector<StateFile>& layout,
                                   const OutputFiles& outputs) {
  std::vector<SharedOutput> shared = plan.folder.empty() ? std::vector<SharedOutput>() : open_shared(state, plan, layout);
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<int64_t> blind, gather_numbers(*state.ranks, shared.size() == layout.size() ? 0 : 1));
  if (std::ranges::find(blind, 1) != blind.end()) {
    DARKROOM_RETURN_IF_ERROR(stream_files(state, layout, outputs));
    return FileDigests();
  }
  Status written;
  for (const auto& output : outputs) {  // Headers.
    written = written.is_ok() ? output->close() : written;
  }
  const FlatRange own = canonical_slices(state.parameters, state.ranks->size())[static_cast<size_t>(state.ranks->rank())];
  written = written.is_ok() ? write_all_own_ranges(plan, layout, own, shared) : written;
  DARKROOM_RETURN_IF_ERROR(agree(*state.ranks, written));
  return digest_by_ranks(plan, layout, *state.ranks);
}

}  // namespace

int64_t num_moments_files(const TrainingState& state) {
  constexpr int64_t kBytesAParameter = 2 * kValueBytes;
  const int64_t most = std::max<int64_t>(1, state.max_moments_file_bytes / kBytesAParameter);
  return std::max<int64_t>(1, (state.parameters.num_elements() + most - 1) / most);
}

FlatRange moments_range(const TrainingState& state, int64_t index, int64_t num_files) {
  const int64_t total = state.parameters.num_elements();
  const int64_t first = total * index / num_files;
  return {first, total * (index + 1) / num_files - first};
}

StateValues values_at_hand(const TrainingState& state) {
  return {.weights = state.parameters.values_of(state.optimizer.slice()),
          .average = state.ema.weights(),
          .first_moment = state.optimizer.first_moment(),
          .second_moment = state.optimizer.second_moment()};
}

std::vector<StateFile> state_files(const TrainingState& state, const std::string& component) {
  const StateValues own = state.snapshot != nullptr ? *state.snapshot : values_at_hand(state);
  std::vector<StateFile> layout = {weights_file(state, component, own.weights), weights_file(state, kEmaFolder, own.average)};
  const int64_t num_files = num_moments_files(state);
  for (int64_t i = 0; i < num_files; ++i) {
    const FlatRange range = moments_range(state, i, num_files);
    layout.push_back(
        {.name = moments_file(i, num_files),
         .specs = {{kFirstMoment, torch::kFloat32, {range.count}}, {kSecondMoment, torch::kFloat32, {range.count}}},
         .metadata = {{"first", fmt::format("{}", range.first)}, {"total", fmt::format("{}", state.parameters.num_elements())}},
         .sections = {{range, own.first_moment}, {range, own.second_moment}}});
  }
  return layout;
}

Result<FileDigests> write_state_files(FileSystem& files, const std::string& folder, const std::string& component,
                                      const TrainingState& state) {
  const torch::NoGradGuard no_grad;
  const std::vector<StateFile> layout = state_files(state, component);
  const Result<OutputFiles> outputs = begin_files(files, folder, layout);
  if (state.ranks->size() == 1) {
    DARKROOM_RETURN_IF_ERROR(outputs.status());
    DARKROOM_RETURN_IF_ERROR(stream_files(state, layout, *outputs));
    return FileDigests();
  }
  const Result<SavingPlan> plan = outputs.is_ok() ? plan_saving(files, folder, component, layout) : outputs.status();
  if (!plan.is_ok()) {
    tell_no_state_files(*state.ranks, plan.status());
    return plan.status();
  }
  DARKROOM_RETURN_IF_ERROR(broadcast_text(*state.ranks, 0, to_bytes(*plan)).status());
  return write_together(state, *plan, layout, *outputs);
}

Status write_state_share(const TrainingState& state) {
  const torch::NoGradGuard no_grad;
  DARKROOM_ASSIGN_OR_RETURN(const std::string bytes, broadcast_text(*state.ranks, 0, {}));
  const nlohmann::json told = nlohmann::json::from_cbor(bytes);
  if (told.contains("failure")) {
    return Status::make(static_cast<StatusCode>(told["code"].get<int>()), told["failure"].get<std::string>()).with_context("rank 0");
  }
  const SavingPlan plan{.component = told["component"].get<std::string>(),
                        .folder = told["folder"].get<std::string>(),
                        .header_bytes = told["header_bytes"].get<std::vector<int64_t>>()};
  return write_together(state, plan, state_files(state, plan.component), {}).status();
}

void tell_no_state_files(Communicator& ranks, const Status& failure) {
  if (ranks.size() > 1) {
    const nlohmann::json told = {{"failure", failure.message()}, {"code", static_cast<int>(failure.code())}};
    static_cast<void>(broadcast_text(ranks, 0, to_bytes(told)));
  }
}

}  // namespace darkroom
