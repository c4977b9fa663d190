from ase import Atoms
from gpaw import GPAW
from gpaw.mpi import world

atom = Atoms("H", cell=(4, 4, 4), pbc=True, magmoms=[1])
atom.calc = GPAW(mode="lcao", basis="sz(dzp)", h=0.4, txt=None)
print(f"rank {world.rank} of {world.size} energy {atom.get_potential_energy():.4f}")
