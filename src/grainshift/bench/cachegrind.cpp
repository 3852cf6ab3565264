// Runs the recurrence kernels alone, for cachegrind: a layer of zeros, the same call again and again.
//
//   cachegrind KIND INPUTS HIDDEN LAYERS DIRECTIONS PRECISION ROWS STEPS BLOCK UNTIL CALLS
//
// One thread and no tensor library, so that the counts are those of the kernels' own loops.
#include "forward.cpp"

namespace {

typedef std::vector<float> Floats;

void pack(Net* net, int64_t gates, std::vector<Floats>& weights) {
  for (size_t number = 0; number < net->sweeps.size(); ++number) {
    const int64_t out = gates * net->hidden, inputs = net->sweeps[number].inputs;
    for (int64_t size : {out * inputs, out * net->hidden, out, out}) weights.emplace_back(size);
    const Floats* last = &weights.back();
    gs_pack(net, number, last[-3].data(), last[-2].data(), last[-1].data(), last[0].data());
  }
}

}  // namespace

int main(int count, char** words) {
  if (count != 12) return 2;
  int64_t given[11];
  for (int at = 0; at < 11; ++at) given[at] = std::atoll(words[at + 1]);
  const auto [kind, inputs, hidden, layers, directions, precision, rows, steps, block, until, calls] =
      given;
  Net* net = gs_make(kind, inputs, hidden, layers, directions, precision);
  std::vector<Floats> weights;
  weights.reserve(4 * layers * directions);
  pack(net, GATES[kind], weights);
  const int64_t width = directions * hidden, state = layers * directions * rows * hidden;
  Floats x(steps * rows * inputs), y(steps * rows * width);
  Floats h(state), c(state), h_after(state), c_after(state);
  Call call{};
  call.net = net;
  call.x = x.data(), call.x_step = rows * inputs, call.x_row = inputs;
  call.y = y.data(), call.y_step = rows * width, call.y_row = width;
  call.h = h.data(), call.c = c.data(), call.h_after = h_after.data();
  call.c_after = kind == LSTM ? c_after.data() : h_after.data();
  call.steps = steps, call.rows = rows, call.block = block, call.until = until, call.threads = 1;
  for (int64_t turn = 0; turn < calls; ++turn)
    if (gs_run(&call) != RAN) return 1;
  gs_free(net);
}
