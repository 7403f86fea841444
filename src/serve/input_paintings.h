#pragma once

#include <functional>

#include "darkroom/serve/image_inputs.h"
#include "picture_orders.h"

namespace darkroom {

/// Reads a request and goes on with it once its pictures are decoded. Called by a thread of the intake.
using ReadRequest = std::function<Result<ImageRequest>(const HttpQuestion& question)>;
using TakeRequest = std::function<void(RouteCall call, Result<ImageRequest> request)>;

/// Has a request with pictures read and its pictures decoded on another thread, then handed to `take`, which must answer. Without an intake
/// the answer is 501. `orders` and `intake` outlive what is done.
void read_with_pictures(RouteCall call, PictureOrders& orders, PictureIntake* intake, ReadRequest read, TakeRequest take);

}  // namespace darkroom
