// The element-wise kernels, once for each instruction set: included by float_kernels_impl.hpp inside its namespace.

// E(x) of docs/arithmetic.md, 2.10, but for the last step: E = mantissa * 2^n with z = n + 0x1.8p23.
inline F32x16 exp_mantissa(F32x16 x, F32x16& z) {
  const F32x16 magic = broadcast(0x1.8p23f);
  z = fma(x, broadcast(0x1.715476p+0f), magic);
  const F32x16 n = sub(z, magic);
  const F32x16 b = fnma(n, broadcast(0x1.7f7d1cp-20f), fnma(n, broadcast(0x1.62e4p-1f), x));
  const F32x16 u = mul(b, b);
  const F32x16 cubic = fma(broadcast(0x1.0e4020p-7f), b, broadcast(0x1.573e2ep-5f));
  const F32x16 square = fma(broadcast(0x1.555e66p-3f), b, broadcast(0x1.fffdb6p-2f));
  const F32x16 linear = fma(broadcast(0x1.ffffecp-1f), b, broadcast(1.0f));
  return fma(fma(cubic, u, square), u, linear);
}
// Beyond +-150 it is infinity or 0 all the same.
inline F32x16 vector_exp(F32x16 x) {
  F32x16 z;
  const F32x16 mantissa = exp_mantissa(min(max(x, broadcast(-150.0f)), broadcast(150.0f)), z);
  return scale_by_power(mantissa, z);
}
inline F32x16 vector_exp_of_nonpositive(F32x16 x) {
  F32x16 z;
  const F32x16 mantissa = exp_mantissa(max(x, broadcast(-110.0f)), z);
  return scale_by_small_power(mantissa, z);
}

void norm_row(float* out, const float* x, float scale, const float* weight, const float* residual, int n) {
  const F32x16 s = broadcast(scale);
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    F32x16 y = mul(load(x + i), s);
    if (weight) y = mul(y, load(weight + i));
    if (residual) y = add(y, load(residual + i));
    store(out + i, y);
  }
  for (; i < n; ++i) {
    float y = x[i] * scale;
    if (weight) y = y * weight[i];
    if (residual) y = y + residual[i];
    out[i] = y;
  }
}

void silu_mul(float* out, const float* gate, const float* up, int n) {
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    const F32x16 g = load(gate + i);
    const F32x16 e = vector_exp(sub(broadcast(0.0f), g));
    store(out + i, mul(div(g, add(broadcast(1.0f), e)), load(up + i)));
  }
  for (; i < n; ++i) out[i] = gate[i] / (1.0f + __builtin_expf(-gate[i])) * up[i];
}

// Halves as indices into a table of all halves: so few of them occur that the table stays in the cache.
void gelu_mul(float* out, const float* gate, const float* up, const half* table, int n) {
  for (int i = 0; i < n; ++i) {
    const float x = gate[i];
    if (x <= -10.0f) {
      out[i] = 0.0f;
    } else {
      out[i] = (x >= 10.0f ? x : widen(table[narrow(x).bits])) * up[i];
    }
  }
}

void soft_max(float* out, const float* x, int n) {
  float most = x[0];
  for (int i = 1; i < n; ++i) most = x[i] > most ? x[i] : most;
  double sum = 0.0;
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    store(out + i, vector_exp_of_nonpositive(sub(load(x + i), broadcast(most))));
    float t[16];
    for (int l = 0; l < 16; ++l) t[l] = out[i + l];
    for (int width = 8; width > 0; width /= 2) {
      for (int l = 0; l < width; ++l) t[l] += t[l + width];
    }
    sum += static_cast<double>(t[0]);
  }
  for (; i < n; ++i) {
    out[i] = __builtin_expf(x[i] - most);
    sum += static_cast<double>(out[i]);
  }
  const float factor = static_cast<float>(1.0 / sum);
  for (i = 0; i < n; ++i) out[i] *= factor;
}

void rotate_adjacent(float* x, const float* table, int n_rot) {
  int i = 0;
  for (; i + 16 <= n_rot; i += 16) {
    const F32x16 pairs = load(x + i), angles = load(table + i);
    // even lanes: x0 c - x1 s; odd lanes: x0 s + x1 c; the product with x0 is the fused one
    store(x + i, fmaddsub(duplicate_even(pairs), angles, mul(duplicate_odd(pairs), swap_pairs(angles))));
  }
  for (; i < n_rot; i += 2) {
    const float x0 = x[i], x1 = x[i + 1], c = table[i], s = table[i + 1];
    x[i] = __builtin_fmaf(x0, c, -(x1 * s));
    x[i + 1] = __builtin_fmaf(x0, s, x1 * c);
  }
}

void rotate_neox(float* x, const float* table, int n_rot) {
  float* y = x + n_rot / 2;
  int i = 0;
  for (; i + 16 <= n_rot / 2; i += 16) {
    F32x16 c, s;
    load_pairs(table + 2 * i, c, s);
    const F32x16 x0 = load(x + i), x1 = load(y + i);
    store(x + i, fma(x0, c, sub(broadcast(-0.0f), mul(x1, s))));
    store(y + i, fma(x0, s, mul(x1, c)));
  }
  for (; i < n_rot / 2; ++i) {
    const float x0 = x[i], x1 = y[i], c = table[2 * i], s = table[2 * i + 1];
    x[i] = __builtin_fmaf(x0, c, -(x1 * s));
    y[i] = __builtin_fmaf(x0, s, x1 * c);
  }
}

void store_half_row(half* out, const float* x, int n) {
  int i = 0;
  for (; i + 16 <= n; i += 16) store_half(out + i, load(x + i));
  for (; i < n; ++i) out[i] = narrow(x[i]);
}
