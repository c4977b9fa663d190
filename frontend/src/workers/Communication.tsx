/** How ranks communicate: the share of their time in MPI, and the bytes between them, where that was recorded. */
export default function Communication() {
  return null;
}
