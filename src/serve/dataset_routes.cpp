#include <algorithm>
#include <exception>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/log.h"
#include "darkroom/files/paths.h"
#include "darkroom/serve/edit_requests.h"
#include "darkroom/serve/served_datasets.h"
#include "free_name.h"
#include "protocols.h"
#include "reading_desk.h"
#include "request_fields.h"

namespace darkroom {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMostRowNumber = int64_t{1} << 53;
constexpr size_t kMostWordsBytes = 1000;

HttpReply dataset_reply(const Json& body) {
  HttpReply reply = json_reply(body);
  reply.headers.emplace_back("Cache-Control", "no-store");
  return reply;
}

void read_rows_fields(RequestFields& fields, DatasetRowsQuestion& asked) {
  asked.from = fields.integer("from", 0, kMostRowNumber).value_or(asked.from);
  asked.count = fields.integer("count", 1, DatasetRowsQuestion::kMostRows).value_or(asked.count);
  asked.words = fields.text("q", kMostWordsBytes).value_or("");
  asked.decodes = fields.boolean("decode").value_or(false);
}

Result<DatasetRowsQuestion> read_rows_question(std::string_view query) {
  DARKROOM_ASSIGN_OR_RETURN(const Json object, read_query(query));
  DatasetRowsQuestion asked;
  RequestFields fields = RequestFields::of_texts(object);
  read_rows_fields(fields, asked);
  fields.refuse_others();
  if (asked.decodes && asked.count != 1) {
    fields.fail(Status::invalid_argument("decode takes one row at a time, so count must be 1, got:", asked.count));
  }
  DARKROOM_RETURN_IF_ERROR(fields.failure());
  return asked;
}

// A path's last part, also of "." and "..", which no address of a request can have.
std::string last_name(const std::string& address) {
  std::error_code failure;
  const bool is_path = address.find("://") == std::string::npos;
  const std::string whole = is_path ? std::filesystem::absolute(address, failure).lexically_normal().string() : address;
  std::string name = file_name(without_trailing_slashes(whole));
  return name.empty() || name == "." || name == ".." ? "dataset" : name;
}

/// The datasets' routes.
class DatasetCounter {
 public:
  DatasetCounter(PictureOrders& orders, const std::vector<NamedDataset>& datasets, ReadingDesk& desk)
      : orders_(orders), datasets_(datasets), desk_(desk) {}

  HttpReply list() const {
    Json names = Json::array();
    for (const NamedDataset& one : datasets_) {
      names.push_back({{"name", one.name}});
    }
    return dataset_reply({{"datasets", names}});
  }

  HttpReply describe(const RouteCall& call) const {
    const NamedDataset* const found = find(call);
    return found == nullptr ? none() : dataset_reply(found->dataset->facts());
  }

  void rows(const RouteCall& call) {
    if (is_of_another_site(call.question)) {  // It takes the server's time.
      call.answer(refusal_of_other_site());
      return;
    }
    const NamedDataset* const found = find(call);
    const auto asked = read_rows_question(call.question.query);
    if (found == nullptr || !asked.is_ok()) {
      call.answer(found == nullptr ? none() : orders_.refusal(asked.status()));
      return;
    }
    const Status taken = desk_.post(call.gone, [this, found, asked = *asked, answer = call.answer](const std::stop_token& stop) {
      answer_by(stop, *found, asked, answer);
    });
    if (!taken.is_ok()) {
      call.answer(orders_.refusal(taken));
    }
  }

 private:
  const NamedDataset* find(const RouteCall& call) const {
    const auto found =
        std::find_if(datasets_.begin(), datasets_.end(), [&](const NamedDataset& one) { return one.name == call.parameters.front(); });
    return found == datasets_.end() ? nullptr : &*found;
  }
  static HttpReply none() {
    return problem_reply(http_status::kNotFound, "no such dataset is served; serve --dataset URI names those that are");
  }

  // A store may be silent and a decoder slow: a stop answers for them.
  void answer_by(const std::stop_token& stop, const NamedDataset& named, const DatasetRowsQuestion& asked,
                 const HttpService::Answer& answer) const {
    ReadingDesk::answer_unless_stopped(
        stop, answer, [&] { return read_or_refuse(named, asked, stop); }, [this] { return orders_.given_up(); });
  }

  HttpReply read_or_refuse(const NamedDataset& named, const DatasetRowsQuestion& asked, const std::stop_token& stop) const {
    std::string reason;
    try {
      return read(named, asked, stop);
    } catch (const std::exception& failure) {  // Memory that is used up, foremost.
      reason = failure.what();
    } catch (...) {
      reason = "an unknown exception";
    }
    return unreadable(named, reason);
  }

  // Where a dataset lies, and what of it cannot be read, is for the log.
  static HttpReply unreadable(const NamedDataset& named, std::string_view reason) {
    log_error("serve: the dataset {} could not be read: {}", named.name, reason);
    return problem_reply(http_status::kServerFault, "the dataset could not be read; the server's log says why");
  }

  HttpReply read(const NamedDataset& named, const DatasetRowsQuestion& asked, const std::stop_token& stop) const {
    const Result<Json> rows = named.dataset->rows(asked, stop);
    const StatusCode code = rows.status().code();
    if (code == StatusCode::kInvalidArgument || code == StatusCode::kCancelled) {
      return code == StatusCode::kCancelled ? orders_.given_up() : orders_.refusal(rows.status());
    }
    if (!rows.is_ok()) {
      return unreadable(named, rows.status().message());
    }
    HttpReply reply = dataset_reply(*rows);
    auto room = orders_.hold_bytes(static_cast<int64_t>(reply.body.size()));
    if (!room.is_ok()) {
      return orders_.refusal(room.status());
    }
    reply.held = *std::move(room);
    return reply;
  }

  PictureOrders& orders_;
  const std::vector<NamedDataset>& datasets_;
  ReadingDesk& desk_;
};

}  // namespace

std::vector<std::string> dataset_names(const std::vector<std::string>& uris) {
  std::vector<std::string> names;
  for (const std::string& uri : uris) {
    const std::string bare = uri.substr(0, uri.find('?'));
    names.push_back(free_name(last_name(bare), names));
  }
  return names;
}

void add_dataset_routes(RouteTable& table, PictureOrders& orders, const std::vector<NamedDataset>& datasets, ReadingDesk& desk) {
  const auto counter = std::make_shared<DatasetCounter>(orders, datasets, desk);  // Shared by the routes.
  table.add({.method = "GET",
             .path = "/v1/datasets",
             .summary = "The datasets that are shown",
             .answer = answer_at_once([counter](const RouteCall&) { return counter->list(); }),
             .replies = {{.what = "Their names."}}});
  table.add({.method = "GET",
             .path = "/v1/datasets/{dataset}",
             .summary = "A dataset: what it is, its columns, its rows by error",
             .answer = answer_at_once([counter](const RouteCall& call) { return counter->describe(call); }),
             .replies = {{.what = "The dataset."}}});
  table.add({.method = "GET",
             .path = "/v1/datasets/{dataset}/rows",
             .summary = "Rows of a dataset with small pictures, from a row on, those that a search finds",
             .answer = [counter](const RouteCall& call) { counter->rows(call); },
             .query_schema =
                 [] {
                   DatasetRowsQuestion asked;
                   return described_fields([&asked](RequestFields& fields) { read_rows_fields(fields, asked); });
                 },
             .replies = {{.what = "The rows, and where to go on."}}});
}

}  // namespace darkroom
