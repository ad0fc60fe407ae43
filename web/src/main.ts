import {App} from './app';
import {loadHighlighter} from './code';
import {loadMath} from './math';

void new App().start();

// The page is there before these are.
setTimeout(() => void loadMath(), 400);
setTimeout(() => void loadHighlighter(), 600);
