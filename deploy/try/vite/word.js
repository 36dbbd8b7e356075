export const word = 'first';
