// Figures of spec 5.
#include "engine/study/published/published.hpp"

namespace troupe {

std::vector<published_figure> spec5_figures() { return {}; }

}  // namespace troupe
