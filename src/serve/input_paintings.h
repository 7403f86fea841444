#pragma once

#include <functional>

#include "darkroom/serve/image_inputs.h"
#include "picture_orders.h"

namespace darkroom {

/// Reads a request and goes on with it once its pictures are decoded. Called by a thread of the intake.
using ReadRequest = std::function<Result<ImageRequest>(const HttpQuestion& question, const ModelFacts& model)>;
/// The model that a request names; empty: none.
using NameModel = std::function<std::string(const HttpQuestion& question)>;
using TakeRequest = std::function<void(RouteCall call, Result<ImageRequest> request)>;

/// Has a request with pictures read and its pictures decoded on a thread of the orders' intake, once its model is there, then handed to
/// `take`, which must answer. Without an intake the answer is 501. `orders` and the intake outlive what is done.
void read_with_pictures(RouteCall call, PictureOrders& orders, const NameModel& name, ReadRequest read, TakeRequest take);

/// The same of a request that may have no picture: a short one is read at once, and waits there only for a picture that it has. A longer
/// one, which has a picture in it or is none, is read there.
void read_perhaps_with_pictures(RouteCall call, PictureOrders& orders, const NameModel& name, ReadRequest read, TakeRequest take);

}  // namespace darkroom
