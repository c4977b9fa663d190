from petsc4py import PETSc
from slepc4py import SLEPc

matrix = PETSc.Mat().createAIJ([20, 20], nnz=3)
first, last = matrix.getOwnershipRange()
for row in range(first, last):
    for column, value in ((row - 1, -1.0), (row, 2.0), (row + 1, -1.0)):
        if 0 <= column < 20:
            matrix.setValue(row, column, value)
matrix.assemble()
solver = SLEPc.EPS().create()
solver.setOperators(matrix)
solver.setProblemType(SLEPc.EPS.ProblemType.HEP)
solver.solve()
value = solver.getEigenvalue(0).real
print(f"rank {PETSc.COMM_WORLD.rank} of {PETSc.COMM_WORLD.size} eigenvalue {value:.5f}")
