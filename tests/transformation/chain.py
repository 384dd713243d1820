"""The text of two maps, one after the other, that tests of transformations share."""
CHAIN = """graph chain opset 18 {
  symbol N >= 1
  input A: f32[N]
  temp t: f32[N]
  temp B: f32[N]
  outputs B
  state main {
    map i in 0:N { t[i] = A[i] + 1.0f }
    map i in 0:N { B[i] = t[i] * 2.0f }
  }
}"""
