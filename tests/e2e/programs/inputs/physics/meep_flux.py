import meep as mp

mp.verbosity(0)
source = mp.Source(mp.GaussianSource(0.2, fwidth=0.2), component=mp.Ez, center=mp.Vector3())
simulation = mp.Simulation(
    cell_size=mp.Vector3(4, 4), resolution=8, boundary_layers=[mp.PML(1)], sources=[source]
)
simulation.run(until=5)
field = simulation.get_field_point(mp.Ez, mp.Vector3(0.5, 0.5)).real
print(f"rank {mp.my_rank()} of {mp.count_processors()} field {field:.6f}")
