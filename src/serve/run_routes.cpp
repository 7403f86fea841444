#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <utility>

#include "darkroom/core/log.h"
#include "darkroom/serve/edit_requests.h"
#include "protocols.h"
#include "request_fields.h"
#include "run_files.h"

namespace darkroom {
namespace {

using Json = nlohmann::json;

// A report is somebody's file at the server's address: nothing in it runs, and it asks nobody.
constexpr const char* kReportPolicy = "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; frame-ancestors 'none'";

HttpReply run_json_reply(const Json& body) { return {.body = json_text(body) + "\n", .headers = {{"Cache-Control", "no-store"}}}; }

std::string read_place(RequestFields& fields) {
  constexpr size_t kMostPlaceBytes = 100;
  std::string place = fields.text("from", kMostPlaceBytes).value_or("");
  fields.describe("from", {{"description", "What an earlier reply said as next; without it: from the first line."}});
  return place;
}

Result<MetricsPiece> read_metrics_after(const ServedRun& run, std::string_view query) {
  DARKROOM_ASSIGN_OR_RETURN(const Json object, read_query(query));
  RequestFields fields = RequestFields::of_texts(object);
  const std::string place = read_place(fields);
  fields.refuse_others();
  DARKROOM_RETURN_IF_ERROR(fields.failure());
  return read_metrics(run, place);
}

/// The runs' routes. A folder's disk may be slow or silent, so all but the list is read at a desk.
class RunRoutes {
 public:
  RunRoutes(PictureOrders& orders, const std::vector<ServedRun>& runs, ReadingDesk& desk) : orders_(orders), runs_(runs), desk_(desk) {}

  HttpReply list() const {
    Json names = Json::array();
    for (const ServedRun& run : runs_) {
      names.push_back({{"name", run.name}});
    }
    return run_json_reply({{"runs", names}});
  }

  HttpReply metrics(const ServedRun& run, const RouteCall& call) const {
    const auto piece = read_metrics_after(run, call.question.query);
    if (!piece.is_ok()) {
      return orders_.refusal(piece.status());
    }
    return run_json_reply({{"lines", piece->lines},
                           {"next", piece->next},
                           {"anew", piece->is_anew},
                           {"more", piece->has_more},
                           {"unreadable", piece->num_unreadable}});
  }

  HttpReply samples(const ServedRun& run, const RouteCall& call) const {
    const auto described = describe_samples(run, call.parameters[1]);
    return described.is_ok() ? run_json_reply(*described) : orders_.refusal(described.status());
  }

  HttpReply picture(const ServedRun& run, const RouteCall& call) const {
    return file_reply(read_sample(run, call.parameters[1], call.parameters[2], room()), "image/png", {{"Cache-Control", "no-store"}});
  }

  HttpReply report(const ServedRun& run) const {
    return file_reply(read_report(run, room()), "text/html; charset=utf-8",
                      {{"Cache-Control", "no-store"}, {"Content-Security-Policy", kReportPolicy}, {"Referrer-Policy", "no-referrer"}});
  }

  /// A route of one run.
  std::function<void(RouteCall)> of_run(std::function<HttpReply(const ServedRun&, const RouteCall&)> reply) const {
    return [this, reply = std::move(reply)](const RouteCall& call) {
      const auto run = std::find_if(runs_.begin(), runs_.end(), [&](const ServedRun& one) { return one.name == call.parameters.front(); });
      if (run == runs_.end()) {
        call.answer(problem_reply(http_status::kNotFound, "no such run is served; serve --run FOLDER names those that are"));
        return;
      }
      const RouteCall asked{.question = call.question, .parameters = call.parameters};
      const Status taken = desk_.post(call.gone, [this, &run = *run, reply, asked, answer = call.answer](const std::stop_token& stop) {
        ReadingDesk::answer_unless_stopped(
            stop, answer, [&] { return read_safely([&] { return reply(run, asked); }); }, [this] { return orders_.given_up(); });
      });
      if (!taken.is_ok()) {
        call.answer(orders_.refusal(taken));
      }
    };
  }

 private:
  static HttpReply read_safely(const std::function<HttpReply()>& read) {
    try {
      return read();
    } catch (const std::exception& failure) {  // A request is a boundary.
      log_error("serve: a run could not be read: {}", failure.what());
      return problem_reply(http_status::kServerFault, "the run could not be read; the server's log says why");
    }
  }
  TakeRoom room() const {
    return [this](int64_t num_bytes) { return orders_.hold_bytes(num_bytes); };
  }
  // Pages of other origins may name these addresses as pictures of theirs; a browser then shows nothing.
  HttpReply file_reply(Result<RoomyBytes> file, const char* type, HttpHeaders headers) const {
    if (!file.is_ok()) {
      return orders_.refusal(file.status());
    }
    headers.emplace_back("Cross-Origin-Resource-Policy", "same-origin");
    return {.type = type, .body = std::move(file->bytes), .headers = std::move(headers), .held = std::move(file->room)};
  }

  PictureOrders& orders_;
  const std::vector<ServedRun>& runs_;
  ReadingDesk& desk_;
};

}  // namespace

void add_run_routes(RouteTable& table, PictureOrders& orders, const std::vector<ServedRun>& runs, ReadingDesk& reading) {
  const auto desk = std::make_shared<RunRoutes>(orders, runs, reading);  // Shared by the routes.
  table.add({.method = "GET",
             .path = "/v1/runs",
             .summary = "The training runs that are shown",
             .answer = answer_at_once([desk](const RouteCall&) { return desk->list(); }),
             .replies = {{.what = "Their names."}}});
  table.add({.method = "GET",
             .path = "/v1/runs/{run}",
             .summary = "A run: its recipe in short, its samples and checkpoints",
             .answer = desk->of_run([desk](const ServedRun& run, const RouteCall&) { return run_json_reply(describe_run(run)); }),
             .replies = {{.what = "The run."}}});
  table.add({.method = "GET",
             .path = "/v1/runs/{run}/metrics",
             .summary = "Lines of a run's metrics, from a place on",
             .answer = desk->of_run([desk](const ServedRun& run, const RouteCall& call) { return desk->metrics(run, call); }),
             .query_schema = [] { return described_fields([](RequestFields& fields) { read_place(fields); }); },
             .replies = {{.what = "Whole lines, at most 256 KiB, and where to go on."}}});
  table.add({.method = "GET",
             .path = "/v1/runs/{run}/samples/{step}",
             .summary = "Which pictures a run has painted at a step",
             .answer = desk->of_run([desk](const ServedRun& run, const RouteCall& call) { return desk->samples(run, call); }),
             .replies = {{.what = "The pictures' files, prompts and seeds."}}});
  table.add({.method = "GET",
             .path = "/v1/runs/{run}/samples/{step}/{file}",
             .summary = "A picture of these",
             .answer = desk->of_run([desk](const ServedRun& run, const RouteCall& call) { return desk->picture(run, call); }),
             .replies = {{.type = "image/png", .what = "The picture."}}});
  table.add({.method = "GET",
             .path = "/v1/runs/{run}/report",
             .summary = "A run's report.html",
             .answer = desk->of_run([desk](const ServedRun& run, const RouteCall&) { return desk->report(run); }),
             .replies = {{.type = "text/html", .what = "The report; nothing in it runs."}}});
}

}  // namespace darkroom
