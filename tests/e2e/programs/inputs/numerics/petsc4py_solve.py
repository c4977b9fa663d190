from petsc4py import PETSc

matrix = PETSc.Mat().createAIJ([20, 20], nnz=3)
first, last = matrix.getOwnershipRange()
for row in range(first, last):
    for column, value in ((row - 1, -1.0), (row, 2.5), (row + 1, -1.0)):
        if 0 <= column < 20:
            matrix.setValue(row, column, value)
matrix.assemble()
answer, right = matrix.createVecs()
right.set(1.0)
solver = PETSc.KSP().create()
solver.setOperators(matrix)
solver.solve(right, answer)
print(f"rank {PETSc.COMM_WORLD.rank} of {PETSc.COMM_WORLD.size} rows {last - first} norm {answer.norm():.4f}")
