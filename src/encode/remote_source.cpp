#include "darkroom/encode/remote_source.h"

#include <algorithm>
#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

#include "darkroom/feed/lru_cache.h"
#include "darkroom/feed/row_group_reader.h"
#include "encoded_batch.h"
#include "slice_columns.h"

namespace darkroom {
namespace {

constexpr int64_t kMostKeyBytes = 1 << 16;     // Of a row, on average.
constexpr int64_t kMostStreamBytes = 1 << 20;  // What a stream has besides its rows.

}  // namespace

struct RemoteSource::State {
  /// Rows that were asked for in one message.
  struct AskedRows {
    int64_t uses = 0;  // By samples that were not read yet.
    std::shared_ptr<const EncodedSlice> slice = nullptr;
  };
  /// Where a sample's row will be.
  struct Place {
    std::shared_ptr<const EncodedRow> row;  // It is here already; else
    uint64_t slice = 0;                     // in this slice
    int64_t at = 0;                         // at this place.
  };
  struct Expected {
    std::vector<SampleRef> samples;
    std::vector<Place> places;
  };

  SliceForm form;
  std::unique_ptr<RowGroupReader> files;  // For names alone: nothing is opened.
  LruCache<EncodedRow> kept;
  std::unordered_map<int64_t, Place> asked;  // By row: of those that some sample waits for.
  std::unordered_map<uint64_t, AskedRows> slices;
  std::deque<Expected> expected;
  std::unique_ptr<SliceFleet> fleet;

  State(SliceForm slice_form, std::unique_ptr<RowGroupReader> reader, int64_t memory_bytes)
      : form(std::move(slice_form)), files(std::move(reader)), kept(memory_bytes) {}
  void ask(const std::vector<int64_t>& rows);
  Result<std::shared_ptr<const EncodedRow>> take(const Place& place, int64_t row);
};

// New rows go out in slices of their own, in the order of the batch.
void RemoteSource::State::ask(const std::vector<int64_t>& rows) {
  const auto slice_rows = static_cast<size_t>(fleet->slice_rows());
  for (size_t first = 0; first < rows.size(); first += slice_rows) {
    const auto end = rows.begin() + static_cast<std::ptrdiff_t>(std::min(rows.size(), first + slice_rows));
    std::vector<int64_t> part(rows.begin() + static_cast<std::ptrdiff_t>(first), end);
    const std::vector<int64_t> numbers = part;
    const uint64_t slice = fleet->ask(std::move(part));
    slices[slice] = {};
    for (size_t at = 0; at < numbers.size(); ++at) {
      asked[numbers[at]] = {.row = nullptr, .slice = slice, .at = static_cast<int64_t>(at)};
    }
  }
}

Result<std::shared_ptr<const EncodedRow>> RemoteSource::State::take(const Place& place, int64_t row) {
  if (place.row != nullptr) {
    return place.row;
  }
  AskedRows& from = slices[place.slice];
  if (from.slice == nullptr) {
    DARKROOM_ASSIGN_OR_RETURN(const auto content, fleet->take(place.slice));
    from.slice = std::static_pointer_cast<const EncodedSlice>(content);
  }
  EncodedRow encoded{.key = from.slice->keys[static_cast<size_t>(place.at)],
                     .latents_chw = from.slice->latents_nchw[place.at].clone(),
                     .states_tw = from.slice->states_btc[place.at].clone()};
  if (--from.uses == 0) {
    // Rows of a slice are wanted together: none is waited for any more.
    std::erase_if(asked, [&](const auto& entry) { return entry.second.slice == place.slice; });
    slices.erase(place.slice);
  }
  kept.erase(row);
  const int64_t num_bytes = encoded.num_bytes();
  return kept.insert(row, std::move(encoded), num_bytes);
}

RemoteSource::RemoteSource(std::unique_ptr<State> state) : state_(std::move(state)) {}
RemoteSource::~RemoteSource() = default;

Result<std::unique_ptr<RemoteSource>> RemoteSource::open(const DatasetFiles& dataset, const DatasetIndex& index, const RowEncoder& encoder,
                                                         const RemoteSourceOptions& options) {
  const SliceForm form = form_of(encoder);
  auto state = std::make_unique<State>(form, RowGroupReader::create(dataset, index), options.memory_bytes);
  SliceFleetOptions fleet = options.fleet;
  fleet.facts = slice_facts(index, encoder);
  fleet.max_slice_bytes = kMostSliceRows * (form.row_bytes() + kMostKeyBytes) + kMostStreamBytes;
  const SliceReader read = [form](std::span<const int64_t> rows, std::string bytes) -> Result<std::shared_ptr<const SliceContent>> {
    DARKROOM_ASSIGN_OR_RETURN(auto slice, read_slice(form, rows, std::move(bytes)));
    return std::shared_ptr<const SliceContent>(std::move(slice));
  };
  DARKROOM_ASSIGN_OR_RETURN(state->fleet, SliceFleet::open(fleet, read));
  return std::unique_ptr<RemoteSource>(new RemoteSource(std::move(state)));
}

void RemoteSource::expect(std::span<const SampleRef> samples) {
  std::vector<int64_t> unknown;
  for (const SampleRef& sample : samples) {
    if (state_->kept.find(sample.row) == nullptr && state_->asked.try_emplace(sample.row).second) {
      unknown.push_back(sample.row);
    }
  }
  state_->ask(unknown);
  State::Expected batch{.samples = {samples.begin(), samples.end()}, .places = {}};
  for (const SampleRef& sample : samples) {
    auto kept = state_->kept.find(sample.row);
    State::Place place = kept != nullptr ? State::Place{.row = std::move(kept)} : state_->asked[sample.row];
    if (place.row == nullptr) {
      state_->slices[place.slice].uses += 1;
    }
    batch.places.push_back(std::move(place));
  }
  state_->expected.push_back(std::move(batch));
}

Result<Batch> RemoteSource::read(std::span<const SampleRef> samples) {
  if (state_->expected.empty() || !std::ranges::equal(state_->expected.front().samples, samples)) {
    expect(samples);
    std::rotate(state_->expected.begin(), state_->expected.end() - 1, state_->expected.end());
  }
  const State::Expected wanted = std::move(state_->expected.front());
  state_->expected.pop_front();
  EncodedBatch batch(state_->form.latents_shape, state_->form.states_shape, samples.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    DARKROOM_ASSIGN_OR_RETURN(const auto row, state_->take(wanted.places[i], samples[i].row));
    batch.add(row->key, row->latents_chw, row->states_tw);
  }
  return std::move(batch).finish();
}

std::string RemoteSource::describe(int64_t row) const { return state_->files->describe(row); }
void RemoteSource::stop_waiting() { state_->fleet->stop_waiting(); }
FleetReport RemoteSource::report() const { return state_->fleet->report(); }

}  // namespace darkroom
