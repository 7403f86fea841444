#include "download_fetch.h"

#include <algorithm>
#include <cctype>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/core/machine.h"
#include "darkroom/image/decoding_memory.h"
#include "darkroom/image/sandbox.h"

namespace darkroom {
namespace {

constexpr size_t kFetchedPieces = 64;

/// The host of a URL that the fetcher took; "" where there is none.
std::string host_of_url(std::string_view url) {
  const size_t scheme = url.find("://");
  if (scheme == std::string_view::npos) {
    return "";
  }
  url.remove_prefix(scheme + 3);
  url = url.substr(0, url.find_first_of("/?#"));
  if (url.find('@') != std::string_view::npos) {  // A name and a password, which were refused and are nobody's business.
    return "";
  }
  const size_t port = url.find(':', url.starts_with('[') ? url.find(']') : 0);
  std::string host(url.substr(0, port));
  std::ranges::transform(host, host.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return host;
}

/// Looks at a fetched picture and fills in its header or its error.
class Inspect : public Stage<DownloadPiece, DownloadPiece> {
 public:
  /// Without a decoder the header is all that is looked at.
  Inspect(const ImageLimits& limits, const DownloadRules& rules, std::unique_ptr<PictureDecoder> decoder, DecodingBudget& decoding,
          ToldErrors& told)
      : limits_(limits), rules_(rules), decoder_(std::move(decoder)), decoding_(decoding), told_(told) {}

  Status process(DownloadPiece piece, Emitter<DownloadPiece>& out) override {
    DownloadRow& row = piece.body;
    TraceSpan span(piece.item->trace.for_piece(piece.position), "inspect", piece.item->trace.context);
    out.count(1, static_cast<int64_t>(row.image.size()));
    if (!row.error) {
      DARKROOM_RETURN_IF_ERROR(inspect(row, out));
    }
    if (row.error) {
      told_.tell(*row.error, row.url);
      std::string().swap(row.image);  // An assignment would keep the buffer.
      piece.bodies.set_held(0);
    }
    span.end();
    return out.emit(std::move(piece));
  }

 private:
  Status inspect(DownloadRow& row, Emitter<DownloadPiece>& out) {
    const auto bytes = std::as_bytes(std::span(row.image));
    const RowResult<ImageHeader> header = probe_image(bytes, limits_);
    if (!header.is_ok()) {
      row.error = header.error();
      return {};
    }
    row.header = header.value();
    if (rules_.denied && rules_.denied->denies(bytes)) {
      row.error = RowError{.code = RowErrorCode::kDenied};
      return {};
    }
    if (decoder_ == nullptr) {
      return {};
    }
    const auto lease = out.waiting([&] { return decoding_.acquire(decoding_bytes(bytes, row.header), out.stop()); });
    if (!lease) {
      return Status::cancelled("stopped before a picture was decoded");
    }
    DARKROOM_ASSIGN_OR_RETURN(const RowResult<ImageHeader> checked, decoder_->check(bytes, limits_));
    if (!checked.is_ok()) {
      row.error = checked.error();
    }
    return {};
  }

  const ImageLimits& limits_;
  const DownloadRules& rules_;
  const std::unique_ptr<PictureDecoder> decoder_;
  DecodingBudget& decoding_;
  ToldErrors& told_;
};

/// From the request to the reply: no thread is at it meanwhile.
void record_fetch(const DownloadPiece& piece, int64_t num_bytes) {
  const ItemTrace& trace = piece.item->trace;
  TraceRecorder* const recorder = trace.for_piece(piece.position);
  if (recorder == nullptr) {
    return;
  }
  recorder->record({.name = "fetch",
                    .context = recorder->make_context(trace.context),
                    .parent = trace.context.span,
                    .begin = piece.sent,
                    .end = recorder->now(),
                    .attributes = {{"darkroom.row", piece.position}, {"darkroom.bytes", num_bytes}},
                    .failure = piece.body.error ? piece.body.error->name() : std::string(),
                    .is_on_thread = false});
}

}  // namespace

DownloadFetch::DownloadFetch(JobRun& run, const DownloadOptions& options, const DownloadRules& rules, size_t work_bytes)
    : run_(run), options_(options), rules_(rules), decoding_(work_bytes), fetched_(kFetchedPieces) {}

Result<std::unique_ptr<DownloadFetch>> DownloadFetch::create(JobRun& run, const DownloadOptions& options, const DownloadRules& rules,
                                                             BodyPool& pool, size_t work_bytes) {
  std::unique_ptr<DownloadFetch> made(new DownloadFetch(run, options, rules, work_bytes));
  FetchOptions fetch = options.fetch;
  fetch.memory = &pool.memory();
  if (rules.denied) {
    fetch.denies = [&denied = *rules.denied](const std::string& url) { return denied.denies(url); };
  }
  // Of robots.txt files alone, the rest being in the pool.
  fetch.max_bytes_in_flight = std::clamp<int64_t>(static_cast<int64_t>(work_bytes), 1, fetch.max_bytes_in_flight);
  DARKROOM_ASSIGN_OR_RETURN(made->fetcher_, Fetcher::create(std::move(fetch), options.metrics));
  return made;
}

void DownloadFetch::add_stages(Pipeline& pipeline, BoundedQueue<DownloadPiece>& read, BoundedQueue<DownloadPiece>& done) {
  const int num_validators = options_.num_validators > 0 ? options_.num_validators : num_processors();
  pipeline.add_source<DownloadPiece>(
      "submit", 1, [this, &read](int, Emitter<DownloadPiece>& out) { return submit(read, out); }, fetched_);
  pipeline.add_source<DownloadPiece>(
      "fetch", 1, [this](int, Emitter<DownloadPiece>& out) { return collect(out); }, fetched_);
  pipeline.add_pool<DownloadPiece, DownloadPiece>(
      "inspect", num_validators,
      [this, stop = pipeline.stop_token()](int) -> Result<std::unique_ptr<Stage<DownloadPiece, DownloadPiece>>> {
        DARKROOM_ASSIGN_OR_RETURN(auto decoder, make_decoder(stop));
        return std::unique_ptr<Stage<DownloadPiece, DownloadPiece>>(
            std::make_unique<Inspect>(options_.limits, rules_, std::move(decoder), decoding_, told_));
      },
      fetched_, done);
  cancelling_.emplace(pipeline.stop_token(), [this] { fetcher_->cancel(); });
}

Status DownloadFetch::submit(BoundedQueue<DownloadPiece>& read, Emitter<DownloadPiece>& out) {
  while (std::optional<DownloadPiece> piece = out.starving([&] { return read.pop(out.stop()); })) {
    out.count(1, 0);
    if (piece->body.error) {
      DARKROOM_RETURN_IF_ERROR(out.emit(*std::move(piece)));
      continue;
    }
    const uint64_t order = piece->order();
    FetchRequest request{.id = order, .url = piece->body.url, .order = order};
    if (const TraceRecorder* trace = piece->item->trace.for_piece(piece->position)) {
      piece->sent = trace->now();
    }
    {
      const std::lock_guard hold(mutex_);
      under_way_.emplace(order, *std::move(piece));
    }
    if (!out.waiting([&] { return fetcher_->submit(std::move(request)); })) {
      return failure_or(Status::cancelled("stopped while fetching"));
    }
  }
  fetcher_->close();
  return {};
}

Status DownloadFetch::collect(Emitter<DownloadPiece>& out) {
  while (std::optional<FetchReply> reply = out.starving([&] { return fetcher_->next(); })) {
    DownloadPiece piece = take(reply->id);
    out.count(1, reply->num_bytes);
    run_.count_bytes(reply->num_bytes);
    hosts_.add(host_of_url(piece.body.url), !reply->body.is_ok(), reply->on_wire);
    if (reply->body.is_ok()) {
      piece.body.image = std::move(reply->body).value();
    } else {
      piece.body.error = reply->body.error();
    }
    record_fetch(piece, reply->num_bytes);
    DARKROOM_RETURN_IF_ERROR(out.emit(std::move(piece)));
  }
  return failure_or({});
}

Status DownloadFetch::wait_for_demand(int64_t max_beyond_places) {
  return fetcher_->wait_for_demand(max_beyond_places) ? Status() : failure_or(Status::cancelled("stopped before an item"));
}

DownloadPiece DownloadFetch::take(uint64_t order) {
  const std::lock_guard hold(mutex_);
  auto node = under_way_.extract(order);
  DARKROOM_CHECK(!node.empty(), "a reply to no request:", order);
  return std::move(node.mapped());
}

// A fetcher that has ended by itself must not look like a stop, nor like the end.
Status DownloadFetch::failure_or(Status otherwise) const {
  Status failure = fetcher_->failure();
  return failure.is_ok() ? otherwise : failure;
}

Result<std::unique_ptr<PictureDecoder>> DownloadFetch::make_decoder(const std::stop_token& stop) const {
  if (options_.validation != Validation::kFull) {
    return std::unique_ptr<PictureDecoder>();
  }
  return open_decoder(options_.decoder_program, options_.limits, stop);
}

}  // namespace darkroom
