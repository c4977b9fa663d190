/** The mark of the page: a launcher with three workers. */
export function Brand() {
  return (
    <svg width="32" height="32" viewBox="0 0 32 32" aria-hidden="true" focusable="false">
      <path d="M8 16h6M14 16V7h6M14 16v9h6M14 16h6" fill="none" stroke="currentColor" strokeWidth="2" strokeLinejoin="round" />
      <circle cx="6" cy="16" r="4" fill="var(--pf-t--global--color--brand--default)" />
      {[7, 16, 25].map((y) => (
        <rect key={y} x="20" y={y - 3.5} width="8" height="7" rx="2" fill="var(--pf-t--global--color--brand--default)" />
      ))}
    </svg>
  );
}
