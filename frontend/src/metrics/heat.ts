/** How strong the colour of a value is, from 0 to 1; even the least is seen. Pure. */
export const heatLevel = (value: number, most: number): number => (most > 0 ? Math.min(1, Math.max(0, value / most)) : 0);

/** The same where values span many orders of magnitude, as bytes between ranks do. */
export const logLevel = (value: number, most: number): number => (value > 0 && most > 1 ? Math.log1p(value) / Math.log1p(most) : 0);
