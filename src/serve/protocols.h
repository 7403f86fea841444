#pragma once

#include <string>
#include <vector>

#include "darkroom/core/metrics.h"
#include "darkroom/serve/served_datasets.h"
#include "darkroom/serve/served_runs.h"
#include "input_paintings.h"
#include "job_store.h"
#include "picture_orders.h"
#include "reading_desk.h"
#include "route_table.h"

namespace darkroom {

// The parts of the service, each a file: what it answers, added to the table. All that is given outlives the table.

/// /ping, /health, /v2/health/..., /metrics.
void add_health_routes(RouteTable& table, const PictureOrders& orders, MetricsRegistry& metrics);
/// /v1/models, /v1/facts, /v2: what there is to ask.
void add_model_routes(RouteTable& table, PictureOrders& orders);
/// /invocations, / and /v1/images/generations: pictures for the request that asks for them.
void add_image_routes(RouteTable& table, PictureOrders& orders);
/// The bodies of /invocations.
std::vector<RouteBody> invocation_bodies(const PictureOrders& orders);
/// What /invocations answers, for the model that `name` says.
void answer_invocation(RouteCall call, PictureOrders& orders, const NameModel& name);
/// Answers with the pictures of a request: whole, or as events of how they come about.
void answer_images(const RouteCall& call, PictureOrders& orders, Result<ImageRequest> request);
/// / and /page/FILE: the page for people.
void add_page_routes(RouteTable& table);
/// /v1/jobs: pictures that are asked for now, watched, and fetched later.
void add_job_routes(RouteTable& table, PictureOrders& orders, JobStore& store);
/// /sdapi/v1: what clients of AUTOMATIC1111's stable-diffusion-webui ask.
void add_a1111_routes(RouteTable& table, PictureOrders& orders);
/// /models of SageMaker's containers of several models, where there is a folder to load from.
void add_multi_model_routes(RouteTable& table, PictureOrders& orders);
/// /v1/images/edits and /imagine.
void add_edit_routes(RouteTable& table, PictureOrders& orders);
/// /v1/runs: training runs, to be looked at.
void add_run_routes(RouteTable& table, PictureOrders& orders, const std::vector<ServedRun>& runs, ReadingDesk& desk);
/// /v1/datasets: datasets, to be looked at.
void add_dataset_routes(RouteTable& table, PictureOrders& orders, const std::vector<NamedDataset>& datasets, ReadingDesk& desk);

}  // namespace darkroom
