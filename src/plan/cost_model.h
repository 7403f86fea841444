#pragma once

#include <string>

#include "darkroom/plan/plan.h"

namespace darkroom {

// The figures of a plan, group by group; each adds to plan.sheet what the next ones use.

/// Samples, distinct pictures, the catalogue's facts.
void add_workload(const Catalogue& catalogue, const MeasuredRates& measured, Plan& plan);
/// Machines and how fast they are. Errors: kInvalidArgument where a role's machine has no rate.
Status add_speeds(const Catalogue& catalogue, const MeasuredRates& measured, Plan& plan);
/// Hours of every stage, and whether encoders keep up with trainers.
void add_hours(Plan& plan);
/// Bytes, requests and traffic, and what they cost at `store`.
void add_storage(const StorePrice& store, Plan& plan);
/// Dollars per purchase, of stages and of the whole. REQUIRES: a price for every machine (parse_fleet).
void add_dollars(const Catalogue& catalogue, Plan& plan);
/// Offline, online with a pool of encoders, online on the trainers.
void add_modes(Plan& plan);
void add_energy(Plan& plan);
/// What lost machines cost: expected, and simulated.
void add_losses(const Catalogue& catalogue, Plan& plan);
/// The time of another run on the measured machine. REQUIRES: measured steps, a request to predict.
void add_prediction(const MeasuredRates& measured, const PredictRequest& request, Plan& plan);
/// Revenue, budget, pay-back, custom or open. Errors: kInvalidArgument naming what the case asks for and the catalogue lacks.
Status add_business(const Catalogue& catalogue, const BusinessCase& given, Plan& plan);

/// The price of a machine for a purchase; else on demand; else any. REQUIRES: it has one.
const Price& price_or_other(const Catalogue& catalogue, const std::string& machine, const std::string& purchase);

}  // namespace darkroom
