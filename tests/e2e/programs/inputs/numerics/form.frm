Symbols a,b,c;
Local F = (a+b+c)^4;
Print;
.end
