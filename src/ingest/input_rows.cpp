#include "darkroom/ingest/input_rows.h"

namespace darkroom {

Status InputRows::seek(const JobPlan& plan, const WorkItem& item) {
  const Location place = plan.input_place(item);
  if (!rows_ || place_.store != place.store || place_.path != place.path) {
    rows_.reset();
    DARKROOM_ASSIGN_OR_RETURN(auto table, plan.open_input(item));
    std::optional<RowFilter> filter;
    if (where_ != nullptr) {
      DARKROOM_ASSIGN_OR_RETURN(filter, where_->bind(*table->schema(), table->format(), table->path()));
    }
    DARKROOM_ASSIGN_OR_RETURN(std::vector<std::string> columns, choose_ ? choose_(*table) : std::vector<std::string>());
    rows_.emplace(std::move(table), std::move(filter), std::move(columns), options_);
    place_ = place;
  }
  return rows_->seek(item.first_row);
}

}  // namespace darkroom
