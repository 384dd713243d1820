def python_pure_op_implementation(f): raise NotImplementedError
