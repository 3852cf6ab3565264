// Runs the recurrence kernels alone, for cachegrind: a layer of zeros, the same call again and again.
//
//   cachegrind KIND INPUTS HIDDEN LAYERS DIRECTIONS PRECISION ROWS STEPS CALLS [BLOCK UNTIL]...
//
// with a block and the step until which there are such blocks for each layer and direction.
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
  std::vector<int64_t> given;
  for (int at = 1; at < count; ++at) given.push_back(std::atoll(words[at]));
  if (given.size() < 9) return 2;
  const int64_t kind = given[0], inputs = given[1], hidden = given[2], layers = given[3];
  const int64_t directions = given[4], precision = given[5], rows = given[6], steps = given[7];
  if (static_cast<int64_t>(given.size()) != 9 + 2 * layers * directions) return 2;
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
  call.steps = steps, call.rows = rows, call.threads = 1, call.plan = given.data() + 9;
  for (int64_t turn = 0; turn < given[8]; ++turn)
    if (gs_run(&call) != RAN) return 1;
  gs_free(net);
}
