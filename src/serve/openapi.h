#pragma once

#include <nlohmann/json.hpp>

#include "route_table.h"

namespace darkroom {

/// The OpenAPI 3.1 document of a table: what is in it comes from the routes, and bodies from the readers of requests (RequestFields).
nlohmann::json openapi_document(const RouteTable& table, bool needs_keys);

/// /openapi.json, of the table itself as it is when somebody asks.
void add_document_route(RouteTable& table, bool needs_keys);

}  // namespace darkroom
