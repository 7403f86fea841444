#pragma once

#include <string>
#include <vector>

#include "darkroom/show/inspect.h"

namespace darkroom {

/// The rows of a dataset as a part of its page: a box to search in, a choice of the order, and a card per row. Without scripts all cards
/// stand there, and box and choice do not. "" without cards.
std::string cards_html(const std::vector<RowCard>& cards);

/// What searches and sorts them; "#q=WORDS" behind the page's address searches at once.
std::string cards_script();

}  // namespace darkroom
