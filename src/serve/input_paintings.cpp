#include "input_paintings.h"

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "darkroom/core/log.h"

namespace darkroom {
namespace {

// All pictures of a request start from the same one.
Result<ImageRequest> decode_inputs(Result<ImageRequest> request, PictureIntake::Desk& desk) {
  if (!request.is_ok() || request->inputs.empty()) {
    return request;
  }
  const PictureSpec& first = request->pictures.front();
  DARKROOM_ASSIGN_OR_RETURN(Image image, desk.decode(std::move(request->inputs.front()), first.width, first.height));
  const auto shared = std::make_shared<const Image>(std::move(image));  // By the pictures of the request.
  for (PictureSpec& picture : request->pictures) {
    picture.init_image = shared;
  }
  request->inputs.clear();
  return request;
}

Status not_read_in_time() { return Status::unavailable("the request was not read by its deadline"); }

// An answer that several may give, of which the first counts.
HttpService::Answer first_answer(HttpService::Answer answer) {
  struct Once {
    std::atomic_flag has_answered;
    HttpService::Answer answer;
  };
  const auto once = std::make_shared<Once>();  // Shared by copies of the function.
  once->answer = std::move(answer);
  return [once](AnyReply reply) {
    if (!once->has_answered.test_and_set()) {
      once->answer(std::move(reply));
    }
  };
}

// Why nothing more is read for a request whose turn it is; its order would be refused for the same.
Status is_worth_reading(const RouteCall& call, const PictureOrders& orders) {
  if (orders.is_draining()) {
    return Status::unavailable("the server is shutting down and takes no more requests");
  }
  const bool is_late = call.deadline.has_value() && orders.clock().now() >= *call.deadline;
  return is_late ? not_read_in_time() : Status::ok();
}

/// Has something done by a thread of the intake, where it waits with so many bytes; that thread answers where it throws, or where nothing
/// more is to be read. The deadline is told also while those threads are busy.
void post_to_intake(RouteCall call, size_t num_bytes, PictureOrders& orders,
                    std::function<void(RouteCall& call, PictureIntake::Desk& desk)> work) {
  const HttpService::Answer answer = first_answer(std::move(call.answer));
  call.answer = answer;
  const auto asked = std::make_shared<RouteCall>(std::move(call));  // Shared by copies of the function.
  const auto late = [answer, &orders] { answer(orders.refusal(not_read_in_time())); };
  const auto task = [asked, answer, &orders, work = std::move(work)](PictureIntake::Desk& desk) {
    try {
      const Status worth = is_worth_reading(*asked, orders);
      worth.is_ok() ? work(*asked, desk) : answer(orders.refusal(worth));
    } catch (const std::exception& failure) {  // A request is a boundary.
      log_error("serve: a request with a picture could not be handled: {}", failure.what());
      answer(orders.refusal(Status::internal("the request could not be handled; the server's log says why")));
    }
  };
  const Clock::Instant deadline = asked->deadline.value_or(Clock::Instant::max());
  const Status posted = orders.intake()->post(num_bytes, asked->gone, task, {.at = deadline, .late = late});
  if (!posted.is_ok()) {
    answer(orders.refusal(posted));
  }
}

void read_for_model(RouteCall call, PictureOrders& orders, const std::string& name, ReadRequest read, TakeRequest take) {
  orders.with_model(
      std::move(call), name, [&orders, read = std::move(read), take = std::move(take)](RouteCall asked, const HeldModel& model) {
        const size_t num_bytes = asked.question.body.size();
        post_to_intake(std::move(asked), num_bytes, orders, [read, take, model](RouteCall& waiting, PictureIntake::Desk& desk) {
          auto request = decode_inputs(read(waiting.question, model->facts), desk);
          waiting.question.body = std::string();
          if (request.is_ok()) {
            request->model = model;
          }
          take(std::move(waiting), std::move(request));
        });
      });
}

// Whether a request with pictures may go on, by which deadline; else it is answered. Reading counts, and so does waiting for it.
bool may_wait_for_intake(RouteCall& call, const PictureOrders& orders) {
  if (orders.intake() == nullptr) {
    call.answer(problem_reply(http_status::kNotImplemented, "this server has no decoder for pictures of requests; its log says why"));
    return false;
  }
  const auto deadline = orders.deadline_of(call);
  if (!deadline.is_ok()) {
    call.answer(orders.refusal(deadline.status()));
    return false;
  }
  call.deadline = *deadline;
  return true;
}

}  // namespace

void read_with_pictures(RouteCall call, PictureOrders& orders, const NameModel& name, ReadRequest read, TakeRequest take) {
  if (!may_wait_for_intake(call, orders)) {
    return;
  }
  if (!orders.has_choice()) {
    read_for_model(std::move(call), orders, "", std::move(read), std::move(take));
    return;
  }
  // The name stands in a body that may be long.
  const size_t num_bytes = call.question.body.size();
  post_to_intake(std::move(call), num_bytes, orders,
                 [&orders, name, read = std::move(read), take = std::move(take)](RouteCall& asked, PictureIntake::Desk&) {
                   const std::string wanted = name(asked.question);
                   read_for_model(std::move(asked), orders, wanted, read, take);
                 });
}

namespace {

constexpr size_t kMostWithoutPicture = 2'000'000;  // Bytes of a body with lists of prompts: read at once where there is no intake.

// Of a request that has been read, with its model.
void decode_pictures(RouteCall call, PictureOrders& orders, ImageRequest request, TakeRequest take) {
  if (!may_wait_for_intake(call, orders)) {
    return;
  }
  call.question.body = std::string();
  size_t num_bytes = 0;
  for (const InputPicture& picture : request.inputs) {
    num_bytes += picture.text.size();
  }
  const auto read = std::make_shared<ImageRequest>(std::move(request));  // Shared by copies of the function.
  post_to_intake(std::move(call), num_bytes, orders, [read, take = std::move(take)](RouteCall& waiting, PictureIntake::Desk& desk) {
    auto decoded = decode_inputs(std::move(*read), desk);
    take(std::move(waiting), std::move(decoded));
  });
}

}  // namespace

void read_perhaps_with_pictures(RouteCall call, PictureOrders& orders, const NameModel& name, ReadRequest read, TakeRequest take) {
  const size_t most_at_once = orders.intake() != nullptr ? kMostReadAtOnce : kMostWithoutPicture;
  if (call.question.body.size() > most_at_once) {
    read_with_pictures(std::move(call), orders, name, std::move(read), std::move(take));
    return;
  }
  const std::string wanted = orders.has_choice() ? name(call.question) : std::string();
  orders.with_model(std::move(call), wanted,
                    [&orders, read = std::move(read), take = std::move(take)](RouteCall asked, const HeldModel& model) {
                      auto request = read(asked.question, model->facts);
                      if (request.is_ok()) {
                        request->model = model;
                      }
                      request.is_ok() && !request->inputs.empty() ? decode_pictures(std::move(asked), orders, *std::move(request), take)
                                                                  : take(std::move(asked), std::move(request));
                    });
}

}  // namespace darkroom
