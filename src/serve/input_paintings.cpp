#include "input_paintings.h"

#include <exception>
#include <memory>
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

}  // namespace

void read_with_pictures(RouteCall call, PictureOrders& orders, PictureIntake* intake, ReadRequest read, TakeRequest take) {
  if (intake == nullptr) {
    call.answer(problem_reply(http_status::kNotImplemented, "this server has no decoder for pictures of requests; its log says why"));
    return;
  }
  const auto asked = std::make_shared<RouteCall>(std::move(call));  // Shared by copies of the function.
  const auto deadline = orders.deadline_of(asked->question);        // Reading counts, and so does waiting for it.
  if (deadline.is_ok()) {
    asked->deadline = *deadline;
  }
  const Status posted =
      intake->post(asked->question.body.size(), asked->gone,
                   [asked, &orders, read = std::move(read), take = std::move(take)](PictureIntake::Desk& desk) {
                     try {
                       if (asked->deadline.has_value() && orders.clock().now() >= *asked->deadline) {
                         asked->answer(orders.refusal(Status::unavailable("the request was not read by its deadline")));
                         return;
                       }
                       auto request = decode_inputs(read(asked->question), desk);
                       asked->question.body = std::string();
                       take(*asked, std::move(request));
                     } catch (const std::exception& failure) {  // A request is a boundary.
                       log_error("serve: a request with a picture could not be handled: {}", failure.what());
                       asked->answer(orders.refusal(Status::internal("the request could not be handled; the server's log says why")));
                     }
                   });
  if (!posted.is_ok()) {
    asked->answer(orders.refusal(posted));
  }
}

}  // namespace darkroom
